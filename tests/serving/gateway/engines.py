"""Engines whose answers a test can predict, and whose pace it controls."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np

from serving.contract import TensorSpec
from serving.worker.engines.contract import EngineInput, EngineOutput, Outcome, Run, Signature, Tensor
from serving.worker.engines.echo import EchoEngine


def fake_embedding(ids: Sequence[int]) -> list[float]:
    """Four numbers that only these ids in this order give."""
    return [float(sum(ids)), float(len(ids)), float(ids[0]), float(ids[-1])]


class FakeEncoder:
    """A text engine: each row's embedding is `fake_embedding` of its ids."""

    can_yield = False
    max_batch_rows = 32
    max_tokens = 512

    def load(self) -> None: ...

    def warm_up(self) -> None: ...

    def signature(self) -> Signature:
        return Signature((), (TensorSpec(name="embedding", datatype="FP32", shape=(-1, 4)),))

    def check(self, item: EngineInput) -> None: ...

    def run(self, inputs: Sequence[EngineInput]) -> Run:
        outcomes: list[Outcome] = [self._embed(item) for item in inputs]
        yield from ()
        return outcomes

    def executed_tokens(self, inputs: Sequence[EngineInput]) -> int:
        return sum(item.tokens for item in inputs)

    def notes(self) -> tuple[str, ...]:
        return ()

    def sample(self, rows: int, tokens: int) -> EngineInput:
        raise NotImplementedError

    def _embed(self, item: EngineInput) -> EngineOutput:
        ids = item.tensors["input_ids"].array.tolist()
        rows, at = [], 0
        for count in item.row_tokens:
            rows.append(fake_embedding(ids[at : at + count]))
            at += count
        return EngineOutput({"embedding": Tensor("FP32", np.array(rows, np.float32))})


class HeldEngine(EchoEngine):
    """An echo that stands still until `release` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.release = threading.Event()
        self.started = threading.Event()
        self.ran: list[int] = []
        """Requests in each batch that began."""

    def run(self, inputs: Sequence[EngineInput]) -> Run:
        self.ran.append(len(inputs))
        self.started.set()
        self.release.wait(20)
        return (yield from super().run(inputs))


class PausingEngine(HeldEngine):
    """A held echo that offers one pause, in which urgent work may run, before it answers."""

    can_yield = True

    def run(self, inputs: Sequence[EngineInput]) -> Run:
        self.ran.append(len(inputs))
        self.started.set()
        self.release.wait(20)
        yield
        return (yield from EchoEngine.run(self, inputs))
