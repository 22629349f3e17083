"""Inputs cut by rows, and their outputs put together again. numpy only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from serving.errors import EngineFailed
from serving.worker.engines.contract import EngineInput, EngineOutput, Tensor


def slices(item: EngineInput, limit: int) -> Iterator[EngineInput]:
    """Pieces of at most `limit` rows, in order; views, nothing is copied."""
    ends = np.cumsum([0, *item.row_tokens]).tolist() if item.row_tokens else []
    for start in range(0, item.rows, limit):
        stop = min(item.rows, start + limit)
        first, last = (ends[start], ends[stop]) if ends else (start, stop)
        yield EngineInput(
            stop - start,
            {name: Tensor(kind, array[first:last]) for name, (kind, array) in item.tensors.items()},
            item.row_tokens[start:stop],
            row_units=item.row_units,
        )


def joined(outputs: Sequence[EngineOutput]) -> dict[str, Tensor]:
    """Raises `EngineFailed` when the outputs of pieces do not fit together."""
    if len(outputs) == 1:
        return outputs[0].tensors
    try:
        return {
            name: Tensor(kind, np.concatenate([output.tensors[name].array for output in outputs]))
            for name, (kind, _) in outputs[0].tensors.items()
        }
    except (KeyError, ValueError) as error:
        raise EngineFailed("the model's outputs differ in name or size from batch to batch") from error
