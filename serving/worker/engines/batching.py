"""Named tensors with a batch dimension: joined across requests, checked, dealt back out. numpy only."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence

import numpy as np

from serving.contract import TensorSpec
from serving.errors import DataPlaneError, EngineFailed, InvalidTensor
from serving.worker.engines.contract import EngineInput, EngineOutput, Outcome, Tensor

Batch = dict[str, Tensor]
Forward = Callable[[Batch, int], Batch]
"""(joined inputs, rows) → outputs with that many rows along dimension 0."""

_FREE_SIZE = 16
"""Stands for a free size in samples."""


def check(item: EngineInput, specs: Sequence[TensorSpec]) -> None:
    """Raises `InvalidTensor` naming the first tensor that is missing, unknown, or not as declared."""
    declared = {spec.name: spec for spec in specs}
    for name in item.tensors.keys() ^ declared.keys():
        problem = "is missing" if name in declared else "is not an input of this model"
        raise InvalidTensor(f"{name} {problem}; inputs are {', '.join(declared)}", param=name)
    for name, tensor in item.tensors.items():
        _check_tensor(name, tensor, declared[name])
    item.row_units = _row_units(item, specs)


def _row_units(item: EngineInput, specs: Sequence[TensorSpec]) -> int:
    """Elements of one row over those of a sample's, rounded up; 1 where every size is declared.

    What a batch costs grows with the sizes of its rows, not with their number alone: so the cost model
    counts these as it counts tokens.
    """
    free = [spec for spec in specs if -1 in spec.shape[1:]]
    if not free:
        return 1
    elements = sum(math.prod(item.tensors[spec.name].array.shape[1:]) for spec in free)
    usual = sum(math.prod(_FREE_SIZE if size == -1 else size for size in spec.shape[1:]) for spec in free)
    return max(1, -(-elements // max(1, usual)))


def _check_tensor(name: str, tensor: Tensor, spec: TensorSpec) -> None:
    if tensor.datatype != spec.datatype:
        raise InvalidTensor(f"{name} must be {spec.datatype}, not {tensor.datatype}", param=name)
    shape = tensor.array.shape
    fits = len(shape) == len(spec.shape) and all(
        want in (-1, got) for want, got in zip(spec.shape[1:], shape[1:], strict=True)
    )
    if not fits:
        raise InvalidTensor(f"{name} must have shape {list(spec.shape)}, not {list(shape)}", param=name)


def run_by_shape(inputs: Sequence[EngineInput], forward: Forward) -> Generator[None, None, list[Outcome]]:
    """Run inputs whose free sizes agree together; requests of different sizes cannot share a tensor."""
    outcomes: list[Outcome] = [EngineFailed("never ran")] * len(inputs)
    for number, indices in enumerate(_by_shape(inputs)):
        if number:
            yield
        members = [inputs[index] for index in indices]
        for index, outcome in zip(indices, _run_group(members, forward), strict=True):
            outcomes[index] = outcome
    return outcomes


def executed_tokens(inputs: Sequence[EngineInput], least: int) -> int:
    """What `run_by_shape` has the device work on, when it fills each group up to `least` rows."""
    executed = 0
    for indices in _by_shape(inputs):
        rows = sum(inputs[index].rows for index in indices)
        executed += max(least, rows) * inputs[indices[0]].row_units
    return executed


def _by_shape(inputs: Sequence[EngineInput]) -> list[list[int]]:
    groups: dict[tuple[object, ...], list[int]] = {}
    for index, item in enumerate(inputs):
        key = tuple((name, tensor.array.shape[1:]) for name, tensor in sorted(item.tensors.items()))
        groups.setdefault(key, []).append(index)
    return list(groups.values())


def _run_group(members: Sequence[EngineInput], forward: Forward) -> list[Outcome]:
    rows = sum(item.rows for item in members)
    outputs = forward(_joined(members), rows)
    error = _wrong_rows(outputs, rows)
    if error is not None:
        return [error] * len(members)
    outcomes: list[Outcome] = []
    start = 0
    for item in members:
        stop = start + item.rows
        parts = {name: Tensor(kind, array[start:stop]) for name, (kind, array) in outputs.items()}
        outcomes.append(EngineOutput(parts))
        start = stop
    return outcomes


def _joined(members: Sequence[EngineInput]) -> Batch:
    if len(members) == 1:
        return members[0].tensors
    return {
        name: Tensor(kind, np.concatenate([item.tensors[name].array for item in members]))
        for name, (kind, _) in members[0].tensors.items()
    }


def _wrong_rows(outputs: Batch, rows: int) -> DataPlaneError | None:
    for name, tensor in outputs.items():
        if not tensor.array.shape or tensor.array.shape[0] != rows:
            shape = list(tensor.array.shape)
            return EngineFailed(f"the model returned {name} of shape {shape} for {rows} rows")
    return None


def sample(specs: Sequence[TensorSpec], rows: int, dtypes: dict[str, np.dtype]) -> EngineInput:
    """Zeros of the declared shapes; free sizes get a small value."""
    tensors = {}
    for spec in specs:
        shape = (rows, *(_FREE_SIZE if size == -1 else size for size in spec.shape[1:]))
        if spec.datatype == "BYTES":
            tensors[spec.name] = Tensor("BYTES", np.full(shape, b"sample", object))
        else:
            tensors[spec.name] = Tensor(spec.datatype, np.zeros(shape, dtypes[spec.datatype]))
    return EngineInput(rows, tensors)


def buckets(max_rows: int) -> list[int]:
    """Batch sizes to warm up and to measure: powers of two and the largest."""
    sizes = [1 << power for power in range(max_rows.bit_length()) if 1 << power <= max_rows]
    return sizes if sizes[-1] == max_rows else [*sizes, max_rows]
