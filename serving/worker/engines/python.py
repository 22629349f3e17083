"""The python engine: code that an operator has trusted, in the artifact's `model.py`.

    class Model:
        signature = {
            "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}],
            "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1]}],
        }
        def __init__(self, path, device, options): ...
        def predict(self, tensors):    # {"x": array [rows, 4]} → {"y": array [rows]}
            ...

It runs inside the worker process with the worker's rights; nothing else of the platform is there.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from serving.contract import TensorSpec
from serving.worker.engines import batching, datatypes
from serving.worker.engines.contract import DeviceLost, EngineInput, LoadFailed, Run, Signature

MODULE = "tidegate_model"
DEFAULT_MAX_BATCH_ROWS = 32


class _Declared(msgspec.Struct):
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


class PythonEngine:
    """Runs `Model.predict` on requests joined along dimension 0."""

    can_yield = False
    max_tokens = 0

    def __init__(
        self, path: Path, options: Mapping[str, str | int | float | bool], *, device: str = "cpu"
    ) -> None:
        self._path, self._options, self._device = path, dict(options), device
        self.max_batch_rows = int(options.get("max_batch_rows", DEFAULT_MAX_BATCH_ROWS))
        self._model: Any = None
        self._signature = Signature((), ())

    def load(self) -> None:
        try:
            model_class = self._import().Model
            self._model = model_class(self._path, self._device, self._options)
            declared = self._model.signature
            declared = declared() if callable(declared) else declared
        except (LoadFailed, MemoryError):
            raise
        except Exception as error:  # the model's own code: anything may come out
            raise LoadFailed(f"model.py failed to load: {type(error).__name__}: {error}") from error
        self._signature = _signature(declared)

    def warm_up(self) -> None:
        for rows in batching.buckets(self.max_batch_rows):
            try:
                self._forward(self.sample(rows, rows).tensors, rows)
            except (DeviceLost, MemoryError):
                raise
            except Exception as error:  # as above
                problem = f"{type(error).__name__}: {error}"
                raise LoadFailed(f"predict failed on {rows} sample rows: {problem}") from error

    def signature(self) -> Signature:
        return self._signature

    def check(self, item: EngineInput) -> None:
        batching.check(item, self._signature.inputs)

    def run(self, inputs: Sequence[EngineInput]) -> Run:
        return (yield from batching.run_by_shape(inputs, self._forward))

    def executed_tokens(self, inputs: Sequence[EngineInput]) -> int:
        return sum(item.tokens for item in inputs)

    def notes(self) -> tuple[str, ...]:
        return ()

    def sample(self, rows: int, tokens: int) -> EngineInput:
        return batching.sample(self._signature.inputs, rows, datatypes.NUMPY)

    def _forward(self, tensors: batching.Batch, rows: int) -> batching.Batch:
        outputs = self._model.predict({name: tensor.array for name, tensor in tensors.items()})
        return {name: datatypes.of_numpy(array) for name, array in outputs.items()}

    def _import(self) -> Any:
        file = self._path / "model.py"
        if not file.is_file():
            raise LoadFailed("the artifact has no model.py")
        spec = importlib.util.spec_from_file_location(MODULE, file)
        assert spec is not None and spec.loader is not None  # a .py file always has a loader
        module = importlib.util.module_from_spec(spec)
        sys.modules[MODULE] = module
        sys.dont_write_bytecode = True  # an artifact stays what it was registered as, also for root
        sys.path.insert(0, str(self._path))  # model.py may import files beside it
        spec.loader.exec_module(module)
        return module


def _signature(declared: Any) -> Signature:
    try:
        parsed = msgspec.convert(declared, _Declared)
    except msgspec.ValidationError as error:
        raise LoadFailed(f"Model.signature is not as it should be: {error}") from error
    for spec in (*parsed.inputs, *parsed.outputs):
        if spec.datatype not in datatypes.NUMPY and spec.datatype != "BYTES":
            raise LoadFailed(f"Model.signature: {spec.name} has the unknown datatype {spec.datatype!r}")
        if not spec.shape or spec.shape[0] != -1:
            raise LoadFailed(f"Model.signature: {spec.name} must have -1 (the batch) as its first dimension")
    return Signature(parsed.inputs, parsed.outputs)
