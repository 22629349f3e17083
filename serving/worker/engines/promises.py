"""An engine held to what its contract says: whatever it yields or returns, the loop sees only sense."""

from __future__ import annotations

from collections.abc import Sequence

from serving.errors import DataPlaneError, EngineFailed
from serving.worker.engines.contract import (
    Emission,
    Engine,
    EngineInput,
    EngineOutput,
    Finished,
    Outcome,
    Run,
    Stalled,
    Step,
)


class BrokenPromise(Exception):
    """The engine itself is at fault: another try with fewer inputs would end the same way."""


def run(engine: Engine, inputs: Sequence[EngineInput]) -> Run:
    """The engine's own steps and outcomes. Raises `BrokenPromise`, and what the engine raises."""
    under_way, watch = engine.run(inputs), _Watch(inputs)
    while True:
        try:
            step = next(under_way)
        except StopIteration as stop:
            return _outcomes(stop.value, inputs)
        if step is not None:
            watch.check(step)
        yield step


class _Watch:
    """Which inputs a batch has and which have ended, by identity: inputs have no other."""

    def __init__(self, inputs: Sequence[EngineInput]) -> None:
        self._inputs = inputs
        self._given: set[int] = set()
        self._ended: set[int] = set()

    def check(self, step: Step) -> None:
        """Raises `BrokenPromise`."""
        if not self._given:  # most batches have no steps but boundaries
            self._given = {id(item) for item in self._inputs}
        if isinstance(step, Emission):
            if self._is_over(step.input) or not isinstance(step.output, EngineOutput):
                raise BrokenPromise("the engine streamed to an input that ended, or that it was not given")
        elif isinstance(step, Finished):
            if id(step.input) not in self._given or not isinstance(
                step.outcome, EngineOutput | DataPlaneError
            ):
                raise BrokenPromise("the engine finished an input that it was not given, or with no outcome")
            self._ended.add(id(step.input))
        elif not isinstance(step, Stalled):
            raise BrokenPromise(f"the engine yielded {type(step).__name__}, which is no step")
        elif not step.inputs or not all(id(item) in self._given and item.stream for item in step.inputs):
            raise BrokenPromise("the engine waits for readers, but not for those of its streams")

    def _is_over(self, item: EngineInput) -> bool:
        return id(item) not in self._given or id(item) in self._ended


def _outcomes(returned: object, inputs: Sequence[EngineInput]) -> list[Outcome]:
    if not isinstance(returned, list):
        raise BrokenPromise(f"the engine returned {type(returned).__name__} instead of outcomes")
    if len(returned) != len(inputs):
        raise BrokenPromise(f"the engine returned {len(returned)} outcomes for {len(inputs)} inputs")
    no_outcome = EngineFailed("the engine returned something else than an outcome for this input")
    return [one if isinstance(one, EngineOutput | DataPlaneError) else no_outcome for one in returned]
