"""The echo engine: answers with its input. Measures everything around an engine, and needs no torch."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from serving.contract import TensorSpec
from serving.errors import InvalidTensor
from serving.worker.engines.contract import EngineInput, EngineOutput, Outcome, Run, Signature, Tensor

_DATATYPES = ("INT64", "FP32")


class EchoEngine:
    """Returns tensor `x` (INT64 or FP32, any shape with a batch dimension) as tensor `y`."""

    can_yield = False
    max_tokens = 0

    def __init__(self, *, max_batch_rows: int = 256, sleep_us: int = 0) -> None:
        self.max_batch_rows = max_batch_rows
        self._sleep_s = sleep_us / 1e6

    def load(self) -> None:
        """Nothing to load."""

    def warm_up(self) -> None:
        """Nothing to warm."""

    def signature(self) -> Signature:
        return Signature(
            (TensorSpec(name="x", datatype="FP32", shape=(-1, -1)),),
            (TensorSpec(name="y", datatype="FP32", shape=(-1, -1)),),
        )

    def check(self, item: EngineInput) -> None:
        tensor = item.tensors.get("x")
        if tensor is None or len(item.tensors) != 1:
            raise InvalidTensor("echo takes one tensor named x", param="x")
        if tensor.datatype not in _DATATYPES:
            raise InvalidTensor(f"x: datatype must be one of {', '.join(_DATATYPES)}", param="x")

    def run(self, inputs: Sequence[EngineInput]) -> Run:
        if self._sleep_s:
            time.sleep(self._sleep_s)
        outcomes: list[Outcome] = [EngineOutput({"y": item.tensors["x"]}) for item in inputs]
        yield from ()
        return outcomes

    def executed_tokens(self, inputs: Sequence[EngineInput]) -> int:
        return sum(item.rows for item in inputs)

    def notes(self) -> tuple[str, ...]:
        return ()

    def sample(self, rows: int, tokens: int) -> EngineInput:
        return EngineInput(rows, {"x": Tensor("FP32", np.zeros((rows, 4), np.float32))})
