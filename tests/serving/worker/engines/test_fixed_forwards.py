"""Recorded forwards of fixed shape give the same as free ones; all but the recording runs on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serving.worker.engines.contract import EngineInput
from serving.worker.engines.encoder.engine import EncoderEngine
from tests.serving.worker.engines import architectures
from tests.serving.worker.engines.running import run, text

pytestmark = pytest.mark.torch


def record(forward: Callable[[], Any]) -> tuple[Callable[[], object], Any]:
    """What a CUDA graph does, by running again into the same memory."""
    states = forward()
    return lambda: states.copy_(forward()), states


@pytest.fixture
def engine(tmp_path: Path) -> EncoderEngine:
    architectures.save(tmp_path, "bert")
    engine = EncoderEngine(tmp_path, {})
    engine.load()
    return engine


def embeddings(engine: EncoderEngine, item: EngineInput) -> np.ndarray:
    return run(engine, [item])[0].tensors["embedding"].array  # type: ignore[union-attr]


BATCHES = [
    [[5]],
    [[5, 6, 7], [8], list(range(9, 49)), [9, 10, 11]],
    [list(range(10, 26))],
    [[3]] * 16,
    [list(range(5, 55))] * 10,
    [list(range(5, 60))] * 12,
]


def test_replayed_batches_equal_free_ones(engine: EncoderEngine) -> None:
    items = [text(*rows) for rows in BATCHES]
    free = [embeddings(engine, item) for item in items]
    engine._encoder.record(record)  # type: ignore[attr-defined]
    for _ in range(2):  # buffers hold what the batch before left there
        for item, expected in zip(items, free, strict=True):
            np.testing.assert_allclose(embeddings(engine, item), expected, atol=1e-5)


def test_a_batch_is_padded_to_the_next_recorded_size(engine: EncoderEngine) -> None:
    item = text([5] * 33)
    assert engine.executed_tokens([item]) == 33
    engine._encoder.record(record)  # type: ignore[attr-defined]
    assert engine.executed_tokens([item]) == 64
    assert engine.executed_tokens([text(*[[5] * 60] * 10)]) == 608
    assert "CUDA graphs" in engine.notes()[-1]


def test_a_device_that_cannot_record_runs_freely(engine: EncoderEngine) -> None:
    def refuse(forward: Callable[[], Any]) -> Any:
        raise RuntimeError("operation not permitted when stream is capturing")

    before = embeddings(engine, text([5, 6, 7]))
    engine._encoder.record(refuse)  # type: ignore[attr-defined]
    np.testing.assert_array_equal(embeddings(engine, text([5, 6, 7])), before)
    assert len(engine.notes()) == 1


def test_the_means_by_row_equal_the_means_by_group() -> None:
    import torch

    from serving.worker.engines.encoder.heads import mean_by_group, mean_by_row
    from serving.worker.engines.encoder.packing import pack
    from serving.worker.engines.encoder.transfer import InPlace

    packing = pack([np.arange(20)], [3, 9, 3, 5])
    states = torch.randn(packing.padded, 8)
    torch.testing.assert_close(mean_by_row(states, packing, InPlace()), mean_by_group(states, packing))
