"""The engine thread: asks the scheduler what to run, runs it, looks for urgent work between layers.

The scheduler is shared with the intake thread under one lock; every decision is pure and short. Answers
are handed to the intake after the next batch was started, so that the device does not wait for encoding.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from serving.scheduling.scheduler import Scheduler
from serving.scheduling.work import Batch, Refusal, Terms, Work
from serving.worker.engines.contract import Emission, Engine, Finished, Outcome, Stalled, Step
from serving.worker.isolation import IsolatedRun
from serving.worker.underway import BatchRun, Underway

STUCK_AFTER_S = 120.0
STUCK_FACTOR = 20.0
"""A step of a batch that takes this long, and this many times its prediction, hangs."""
STUCK_STEPS = 5.0
"""So does a batch that goes on for this many times as long and gives nobody an answer or a chunk."""
STALL_LOOK_S = 0.05
"""While readers hold a batch up, it is looked at this often without anything having happened."""


@dataclass(slots=True)
class Settled:
    """What the engine thread hands to the intake: batches that ran and works that expired in the queue."""

    runs: list[BatchRun] = field(default_factory=list)
    expired: list[tuple[Work, Refusal]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.runs or self.expired)


@dataclass(slots=True)
class Counters:
    """Since the last `take_counters`, except `queued_rows` and `running_rows`, which are now."""

    queued_rows: int = 0
    running_rows: int = 0
    busy_us: int = 0
    batches: int = 0
    rows: int = 0
    tokens: int = 0
    executed_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Notice:
    """Something an operator wants to know of a replica: an event's name and the numbers behind it."""

    event: str
    numbers: dict[str, int | float]


class EngineLoop:
    """Owns the scheduler and, on one thread, the engine.

    `submit`, `cancel`, `drain`, `take_counters` may be called from any thread. `run` is the thread's main:
    it returns when drained and raises `DeviceLost` when only a new process helps.
    """

    def __init__(
        self,
        engine: Engine,
        scheduler: Scheduler,
        deliver: Callable[[Settled], None],
        clock: Callable[[], float] = time.monotonic,
        *,
        notify: Callable[[Notice], None] = lambda notice: None,
    ) -> None:
        """`deliver` and `notify` are called on the engine's thread."""
        self._engine = engine
        self._scheduler = scheduler
        self._deliver = deliver
        self._notify = notify
        self._clock = clock
        self._changed = threading.Condition()
        self._settled = Settled()
        self._counters = Counters()
        self._is_draining = False
        self._stuck_at = math.inf

    def submit(self, requests: Sequence[Sequence[Work]]) -> list[Refusal | None]:
        """Queue requests, each as a whole or not at all; one refusal or None per request."""
        with self._changed:
            now = self._clock()
            answers = [self._scheduler.submit_parts(works, now) for works in requests]
            self._changed.notify()
        return answers

    def cancel(self, work_ids: Sequence[int]) -> list[int]:
        """Ids that were still queued and now never run."""
        with self._changed:
            return [work_id for work_id in work_ids if self._scheduler.cancel(work_id)]

    def amend(self, requests: Sequence[tuple[Sequence[Work], Terms]]) -> None:
        """New terms for what still waits of these requests; what runs or ended keeps its own."""
        with self._changed:
            now = self._clock()
            for works, terms in requests:
                for work in works:
                    self._scheduler.amend(work.id, terms, now)
            self._changed.notify()

    def wake(self) -> None:
        """A reader of a stream has room again, or is gone."""
        with self._changed:
            self._changed.notify()

    def drain(self) -> None:
        """Finish what is queued and running, then let `run` return."""
        with self._changed:
            self._is_draining = True
            self._scheduler.drain()
            self._changed.notify()

    @property
    def is_stuck(self) -> bool:
        """Whether the engine is in one step for so long that it will not come back."""
        return self._clock() >= self._stuck_at

    @property
    def queued_rows(self) -> int:
        return self._scheduler.queued_rows

    def take_counters(self) -> Counters:
        with self._changed:
            taken = self._counters
            self._counters = Counters(running_rows=taken.running_rows)
            taken.queued_rows = self._scheduler.queued_rows
            return taken

    def run(self) -> None:
        while self.step():
            pass

    def step(self) -> bool:
        """Wait for one batch and run it; False when drained."""
        batch = self._next_batch()
        if batch is not None:
            self._execute(batch)
        return batch is not None

    # ------------------------------------------------------------ deciding, under the lock

    def _next_batch(self) -> Batch | None:
        with self._changed:
            while True:
                now = self._clock()
                self._settled.expired += self._scheduler.expired(now)
                decision = self._scheduler.next_batch(now)
                if isinstance(decision, Batch):
                    self._counters.running_rows += decision.rows
                    return decision
                self._hand_over()
                if decision is None and self._is_draining:
                    return None
                self._changed.wait(None if decision is None else max(0.0, decision - now))

    def _next_urgent(self, running: Batch) -> Batch | None:
        with self._changed:
            urgent = self._scheduler.urgent_batch(self._clock(), running)
            if urgent is not None:
                self._counters.running_rows += urgent.rows
            return urgent

    # ------------------------------------------------------------ doing

    def _execute(self, batch: Batch) -> None:
        self._hand_over()
        underway = Underway(batch, self._engine, self._clock())
        patience_s = max(STUCK_AFTER_S, STUCK_FACTOR * batch.predicted_s)
        due = underway.started + STUCK_STEPS * patience_s
        while True:
            self._stuck_at = min(due, self._clock() + patience_s)
            try:
                step = next(underway.run)
            except StopIteration as stop:
                outcomes: list[Outcome] = stop.value
                break
            stood_still_s = self._run_urgent(batch) if step is None else self._take(step, underway)
            underway.interrupted_s += stood_still_s
            due = self._clock() + STUCK_STEPS * patience_s if _is_progress(step) else due + stood_still_s
        self._stuck_at = math.inf
        self._finish(underway, outcomes, self._clock())

    def _take(self, step: Emission | Finished | Stalled, underway: Underway) -> float:
        """What streams yield besides boundaries; seconds the batch stood still for it."""
        if isinstance(step, Emission):
            if step.input.stream is not None:
                step.input.stream.emit(step.output)
        elif isinstance(step, Finished):
            left = underway.leave(step, self._clock())
            if left is not None:
                self._settled.runs.append(left)
                self._hand_over()
        else:
            stood_still_s = self._stand_still(step, has_company=underway.has_company(step))
            return stood_still_s + self._run_urgent(underway.batch)
        return 0.0

    def _finish(self, underway: Underway, outcomes: list[Outcome], ended: float) -> None:
        batch, inputs, isolated = underway.batch, underway.inputs, underway.isolated
        executed_tokens = self._engine.executed_tokens(inputs)
        shares_us = self._complete(underway, ended, executed_tokens, isolated.culprits(outcomes))
        execute_s, rest = underway.execute_s(ended), underway.without_left(outcomes)
        ran = BatchRun(batch, rest, underway.started, ended, execute_s, shares_us, executed_tokens)
        self._settled.runs.append(ran)
        if isolated.largest_failed_tokens:
            self._learn_limit(batch, isolated, ended)

    def _run_urgent(self, running: Batch) -> float:
        """Run the urgent work due at a layer boundary; seconds the running batch stood still for it."""
        if running.is_urgent or not self._scheduler.has_urgent:
            running.boundaries += 1
            return 0.0
        urgent = self._next_urgent(running)
        if urgent is None:
            return 0.0
        began = self._clock()
        self._execute(urgent)
        self._hand_over()
        return self._clock() - began

    def _stand_still(self, stalled: Stalled, *, has_company: bool) -> float:
        """Wait for a reader, or for anything else that happens; seconds the device waited."""
        streams = [item.stream for item in stalled.inputs if item.stream is not None]
        began, self._stuck_at = self._clock(), math.inf
        with self._changed:
            if not any(stream.is_writable or not stream.is_wanted for stream in streams):
                self._changed.wait(STALL_LOOK_S)
            is_contended = has_company or self._scheduler.queued_work > 0 or self._scheduler.is_interrupting
        waited_s = self._clock() - began
        for stream in streams:
            stream.stood_still(waited_s, is_contended=is_contended)
        return waited_s

    def _learn_limit(self, batch: Batch, isolated: IsolatedRun, now: float) -> None:
        """Say what did not fit; when it was too many together, batches are smaller from now on."""
        failed_tokens = isolated.overflow_tokens
        numbers: dict[str, int | float] = {"batch_tokens": batch.tokens}
        if not failed_tokens:
            numbers["failed_tokens"] = isolated.largest_failed_tokens
            self._notify(Notice("input.out_of_memory", numbers))
            return
        with self._changed:
            cap = self._scheduler.ran_out_of_memory(failed_tokens, now)
        numbers |= {"failed_tokens": failed_tokens, "cap_tokens": int(cap)}
        self._notify(Notice("batch.out_of_memory", numbers))

    def _complete(
        self, underway: Underway, ended: float, executed_tokens: int, culprits: Sequence[int]
    ) -> list[int]:
        batch, execute_s = underway.batch, underway.execute_s(ended)
        with self._changed:
            counters = self._counters
            counters.running_rows -= batch.rows
            counters.busy_us += round(execute_s * 1e6)
            counters.batches += 1
            counters.rows += batch.rows
            counters.tokens += batch.tokens
            counters.executed_tokens += executed_tokens
            return self._scheduler.complete(
                batch,
                execute_s,
                ended,
                learn=underway.is_typical,
                departures=underway.departures,
                culprits=culprits,
            )

    def _hand_over(self) -> None:
        if self._settled:
            settled, self._settled = self._settled, Settled()
            self._deliver(settled)


def _is_progress(step: Step) -> bool:
    """Whether somebody got something of the batch: boundaries alone may go on for ever."""
    if isinstance(step, Emission):
        return step.input.stream is not None and step.input.stream.is_wanted
    return isinstance(step, Finished)
