"""An engine driven without a loop around it: for measuring, where nothing else wants the device."""

from __future__ import annotations

from collections.abc import Sequence

from serving.errors import DataPlaneError
from serving.worker.engines.contract import Engine, EngineInput, EngineOutput, Outcome


def run(engine: Engine, items: Sequence[EngineInput]) -> list[EngineOutput]:
    """One batch. Raises what the engine raises, also when it returns the error as an item's outcome."""
    batch = engine.run(items)
    while True:
        try:
            next(batch)
        except StopIteration as stop:
            outcomes: list[Outcome] = stop.value
            break
    answers: list[EngineOutput] = []
    for outcome in outcomes:
        if isinstance(outcome, DataPlaneError):
            raise outcome
        answers.append(outcome)
    return answers
