"""A batch while it is on the device, and what is left of it afterwards.

Works of a batch end together, unless its engine says of one that it has finished (streams are of different
lengths): that one is settled at once, and pays for its part of the time until then.
"""

from __future__ import annotations

from dataclasses import dataclass

from serving.scheduling.receipts import Departures
from serving.scheduling.work import Batch
from serving.worker.engines.contract import Engine, EngineInput, Finished, Outcome, Stalled
from serving.worker.isolation import IsolatedRun


@dataclass(slots=True)
class BatchRun:
    """A batch that ran: outcomes in the order of `batch.works`, times on the loop's clock."""

    batch: Batch
    outcomes: list[Outcome | None]
    """None for a work that is settled with another run: it left its batch before the end."""
    started: float
    ended: float
    execute_s: float
    """Time on the device, without interruptions by urgent batches."""
    shares_us: list[int]
    """Of the device time, in the order of `batch.works`."""
    executed_tokens: int = 0
    """What the device worked on, padding included."""


class Underway:
    """A batch on the device."""

    __slots__ = ("batch", "departures", "inputs", "interrupted_s", "isolated", "run", "started")

    def __init__(self, batch: Batch, engine: Engine, now: float) -> None:
        self.batch = batch
        self.inputs: list[EngineInput] = [work.payload.input for work in batch.works]
        self.isolated = IsolatedRun(engine)
        self.run = self.isolated.run(self.inputs)
        self.started = now
        self.interrupted_s = 0.0
        self.departures: Departures | None = None
        """Set when the first work leaves before the batch ends."""

    def execute_s(self, now: float) -> float:
        """Time on the device so far."""
        return now - self.started - self.interrupted_s

    @property
    def is_typical(self) -> bool:
        """Whether its time says something about the cost curve: how long a stream runs is up to its answer."""
        return self.isolated.is_whole and all(item.stream is None for item in self.inputs)

    def has_company(self, stalled: Stalled) -> bool:
        """Whether others than the stalled inputs wait for the batch's end."""
        departures = self.departures
        return (len(self.inputs) if departures is None else departures.open_count) > len(stalled.inputs)

    def leave(self, step: Finished, now: float) -> BatchRun | None:
        """The end of one work before that of its batch; None for the last one, which ends with it."""
        departures = self.departures = self.departures or Departures(self.batch)
        if departures.open_count == 1 or id(step.input) in self.isolated.finished:
            return None
        position = next(at for at, item in enumerate(self.inputs) if item is step.input)
        self.isolated.finished.add(id(step.input))
        shares_us, outcomes = [0] * len(self.inputs), [None] * len(self.inputs)
        execute_s = self.execute_s(now)
        shares_us[position] = departures.leave(position, round(execute_s * 1e6))
        run = BatchRun(self.batch, list(outcomes), self.started, now, execute_s, shares_us)
        run.outcomes[position] = step.outcome
        return run

    def without_left(self, outcomes: list[Outcome]) -> list[Outcome | None]:
        finished = self.isolated.finished
        return [
            None if id(item) in finished else one for item, one in zip(self.inputs, outcomes, strict=True)
        ]
