"""Drives an engine without a loop around it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from serving.worker.engines.contract import Engine, EngineInput, Outcome, Run, Tensor


def finish(run: Run) -> tuple[list[Outcome], int]:
    """The outcomes, and how often the engine paused."""
    pauses = 0
    while True:
        try:
            next(run)
        except StopIteration as stop:
            return stop.value, pauses
        pauses += 1


def run(engine: Engine, inputs: Sequence[EngineInput]) -> list[Outcome]:
    return finish(engine.run(inputs))[0]


def text(*rows: Sequence[int]) -> EngineInput:
    """One request whose rows are these token ids."""
    flat = np.array([token for row in rows for token in row], np.int32)
    return EngineInput(len(rows), {"input_ids": Tensor("INT32", flat)}, tuple(len(row) for row in rows))
