"""Engines whose streams are watched, held, careless or broken."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from serving.worker.engines.contract import Emission, EngineInput, EngineOutput, Outcome, Run
from serving.worker.engines.echo import EchoEngine


class Watched(EchoEngine):
    """Counts what it emitted, and how many batches ended."""

    def __init__(self, chunks: int = 1000) -> None:
        super().__init__(chunks=chunks)
        self.emitted = 0
        self.ended = 0

    def run(self, inputs: Sequence[EngineInput]) -> Run:
        run = super().run(inputs)
        while True:
            try:
                step = next(run)
            except StopIteration as stop:
                self.ended += 1
                return stop.value  # type: ignore[no-any-return]
            self.emitted += isinstance(step, Emission)
            yield step


class Blocked(Watched):
    """Its first batch waits for `open`, so that what is sent meanwhile runs together."""

    def __init__(self) -> None:
        super().__init__()
        self.open = threading.Event()
        self.started = threading.Event()

    def run(self, inputs: Sequence[EngineInput]) -> Run:
        self.started.set()
        assert self.open.wait(10)
        return (yield from super().run(inputs))


class Careless(EchoEngine):
    """Emits `x` as many times as its first number says, whatever its readers can take."""

    def run(self, inputs: Sequence[EngineInput]) -> Run:
        for item in inputs:
            for _ in range(int(item.tensors["x"].array.flat[0])):
                yield Emission(item, EngineOutput({"y": item.tensors["x"]}))
        outcomes: list[Outcome] = [EngineOutput() for _ in inputs]
        return outcomes


class Breaking(EchoEngine):
    """Emits one chunk for every streamed input, then fails the batch if a number in it is negative."""

    def run(self, inputs: Sequence[EngineInput]) -> Run:
        for item in inputs:
            if item.stream is not None:
                yield Emission(item, EngineOutput({"y": item.tensors["x"]}))
        if any((item.tensors["x"].array < 0).any() for item in inputs):
            raise RuntimeError("a poisoned batch")
        return [EngineOutput({"y": item.tensors["x"]}) for item in inputs]
