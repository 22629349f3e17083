"""The ONNX engine: an `.onnx` graph with named tensors and a batch dimension, run by onnxruntime.

The batch dimension is the first one of every input and output, as in the tensor engine: a free one takes
whatever comes, a fixed one is padded. onnxruntime is an optional extra (`requirements-onnx.txt`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from serving.contract import TensorSpec
from serving.errors import InvalidTensor
from serving.worker.artifact import only_file
from serving.worker.engines import batching, datatypes, onnx_runtime
from serving.worker.engines.contract import EngineInput, LoadFailed, Run, Signature, Tensor

DEFAULT_MAX_BATCH_ROWS = 64


class OnnxEngine:
    can_yield = False
    max_tokens = 0

    def __init__(
        self,
        path: Path,
        options: Mapping[str, str | int | float | bool],
        *,
        device: str = "cpu",
        threads: int = 1,
    ) -> None:
        self._path, self._device, self._threads = path, device, threads
        self.max_batch_rows = int(options.get("max_batch_rows", DEFAULT_MAX_BATCH_ROWS))
        self._fixed_rows: int | None = None
        self._signature = Signature((), ())
        self._session: Any = None
        self._uses_bf16 = False

    def load(self) -> None:
        file = only_file(self._path, ".onnx", "onnx engine runs one ONNX model")
        self._session = onnx_runtime.open_session(file, self._device, self._threads)
        inputs, outputs = self._session.get_inputs(), self._session.get_outputs()
        self._signature = Signature(tuple(map(_spec, inputs)), tuple(map(_spec, outputs)))
        self._fixed_rows = _fixed_rows(inputs, outputs)
        self._uses_bf16 = any(spec.datatype == "BF16" for specs in self._signature for spec in specs)
        if self._fixed_rows is not None:
            self.max_batch_rows = min(self.max_batch_rows, self._fixed_rows)

    def warm_up(self) -> None:
        for rows in batching.buckets(self.max_batch_rows):
            self._forward(self.sample(rows, rows).tensors, rows)

    def signature(self) -> Signature:
        return self._signature

    def check(self, item: EngineInput) -> None:
        batching.check(item, self._signature.inputs)

    def run(self, inputs: Sequence[EngineInput]) -> Run:
        return (yield from batching.run_by_shape(inputs, self._forward))

    def executed_tokens(self, inputs: Sequence[EngineInput]) -> int:
        return batching.executed_tokens(inputs, self._fixed_rows or 1)

    def notes(self) -> tuple[str, ...]:
        return ()

    def sample(self, rows: int, tokens: int) -> EngineInput:
        return batching.sample(self._signature.inputs, rows, datatypes.NUMPY)

    def _forward(self, tensors: batching.Batch, rows: int) -> batching.Batch:
        given = {
            name: Tensor(kind, _padded(array, self._fixed_rows or rows))
            for name, (kind, array) in tensors.items()
        }
        names = [spec.name for spec in self._signature.outputs]
        with onnx_runtime.translated_errors():
            if self._uses_bf16:
                arrays = onnx_runtime.run_with_bit_patterns(self._session, names, given)
            else:
                arrays = self._session.run(names, {name: _sent(name, each) for name, each in given.items()})
        return {
            spec.name: Tensor(spec.datatype, self._cut(_received(spec, array), rows))
            for spec, array in zip(self._signature.outputs, arrays, strict=True)
        }

    def _cut(self, array: np.ndarray, rows: int) -> np.ndarray:
        """Without the rows that filled a fixed batch; an output of any other size is an error found later."""
        is_padded = array.ndim > 0 and array.shape[0] == self._fixed_rows
        return array[:rows] if is_padded else array


def _padded(array: np.ndarray, rows: int) -> np.ndarray:
    """Rows that only fill a fixed batch repeat the last one: every operator can compute with a real row."""
    missing = rows - array.shape[0]
    return array if missing <= 0 else np.concatenate([array, np.repeat(array[-1:], missing, axis=0)])


def _sent(name: str, tensor: Tensor) -> np.ndarray:
    """ONNX strings are UTF-8. Raises `InvalidTensor` for bytes that are not."""
    if tensor.datatype != "BYTES":
        return tensor.array
    try:
        texts = [item.decode() for item in tensor.array.ravel().tolist()]
    except UnicodeDecodeError:
        raise InvalidTensor(f"{name}: this model takes text, and an item is not UTF-8", param=name) from None
    return np.array(texts, object).reshape(tensor.array.shape)


def _received(spec: TensorSpec, array: np.ndarray) -> np.ndarray:
    if spec.datatype != "BYTES":
        return array
    out = np.empty(array.size, object)
    out[:] = [item.encode() for item in array.ravel().tolist()]
    return out.reshape(array.shape)


# ---------------------------------------------------------------- reading a graph


def _spec(node: Any) -> TensorSpec:
    """`node` is onnxruntime's `NodeArg`: its free sizes are names or None."""
    datatype = onnx_runtime.DATATYPES.get(node.type)
    if datatype is None:
        raise LoadFailed(f"{node.name} is a {node.type}, which no client can send")
    if not node.shape:
        raise LoadFailed(f"{node.name} is no tensor with a batch dimension (the first one)")
    sizes = tuple(size if isinstance(size, int) else -1 for size in node.shape[1:])
    return TensorSpec(name=node.name, datatype=datatype, shape=(-1, *sizes))


def _fixed_rows(inputs: Sequence[Any], outputs: Sequence[Any]) -> int | None:
    """The fixed batch size; None when it is free. Outputs may have lost the name of the batch dimension."""
    if not inputs:
        raise LoadFailed("the model has no inputs")
    firsts = {node.shape[0] for node in inputs}
    fixed = firsts | {node.shape[0] for node in outputs if isinstance(node.shape[0], int)}
    sizes = {size for size in fixed if size is not None}
    if len(sizes) > 1:
        found = ", ".join(sorted(map(str, sizes)))
        raise LoadFailed(f"the first dimensions differ ({found}): one batch size must fit all")
    size = next(iter(sizes), None)
    if isinstance(size, int) and size < 1:
        raise LoadFailed("the batch dimension has no rows")
    return size if isinstance(size, int) else None
