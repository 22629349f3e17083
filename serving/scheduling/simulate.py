"""The scheduler in virtual time: a discrete-event device, arrivals, and what each tenant got.

It drives the same `Scheduler` the worker runs, so that a policy can be judged in milliseconds of real time
(tests, the planner). Randomness comes from the caller: iterators of gaps and sizes, and a noise function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush

from serving.contract import CostCurve, LatePolicy, SlaClass
from serving.scheduling.scheduler import Scheduler
from serving.scheduling.work import Batch, Refusal, Work


@dataclass(slots=True)
class Traffic:
    """One tenant's load: open loop when it has `gaps`, otherwise closed with `outstanding` requests."""

    tenant_id: str
    sla_class: SlaClass
    tokens: Callable[[], int]
    gaps: Iterator[float] | None = None
    """Seconds between arrivals."""
    outstanding: int = 0
    think_s: float = 0.002
    """Closed loop: from an answer to the next request (client, network, gateway)."""
    target_s: float = 0.2
    deadline_s: float = 60.0
    weight: float = 1.0
    max_batch_size: int = 32
    max_wait_s: float = 0.0
    max_queue: int = 1024
    late_policy: LatePolicy = "refuse"


@dataclass(slots=True)
class Device:
    """What the batches really take: a curve, a noise factor per batch, and pauses between equal pieces."""

    curve: CostCurve
    noise: Callable[[], float] = lambda: 1.0
    segments: int = 18

    def time_s(self, rows: int, tokens: int) -> float:
        curve = self.curve
        return (curve.a_ms + curve.b_ms_per_row * rows + curve.c_ms_per_token * tokens) / 1e3 * self.noise()


@dataclass(slots=True)
class Tally:
    """What one traffic got. Latencies in seconds, of answered requests."""

    latencies_s: list[float] = field(default_factory=list)
    refused: int = 0
    expired: int = 0
    device_s: float = 0.0
    kept: int = 0

    @property
    def answered(self) -> int:
        return len(self.latencies_s)

    @property
    def kept_share(self) -> float:
        """Answers within the target, of everything asked."""
        asked = self.answered + self.refused + self.expired
        return self.kept / asked if asked else 1.0

    def percentile_s(self, share: float) -> float:
        ordered = sorted(self.latencies_s)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


@dataclass(slots=True)
class _Run:
    batch: Batch
    piece_s: float
    pieces_left: int


class Simulation:
    """`run(until_s)` plays all traffics; afterwards `tallies[i]` belongs to `traffics[i]`."""

    def __init__(
        self,
        scheduler: Scheduler,
        device: Device,
        traffics: list[Traffic],
        *,
        on_batch: Callable[[Batch, float], None] | None = None,
    ) -> None:
        self.scheduler = scheduler
        self.tallies = [Tally() for _ in traffics]
        self.busy_s = 0.0
        self.idle_while_waiting_s = 0.0
        self.now = 0.0
        self._device = device
        self._traffics = traffics
        self._on_batch = on_batch
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0
        self._stack: list[_Run] = []
        self._next_id = 0
        self._until_s = 0.0

    def run(self, until_s: float) -> None:
        """Arrivals stop at `until_s`; what is queued then still runs."""
        self._until_s = until_s
        for index, traffic in enumerate(self._traffics):
            if traffic.gaps is not None:
                self._at(self.now + next(traffic.gaps), partial(self._open_arrival, index))
            for _ in range(traffic.outstanding):
                self._at(self.now, partial(self._arrive, index))
        while self._events:
            self._step()

    def _step(self) -> None:
        at, _, event = heappop(self._events)
        if not self._stack and self.scheduler.queued_work:
            self.idle_while_waiting_s += at - self.now
        self.now = at
        event()

    def _at(self, at: float, event: Callable[[], None]) -> None:
        self._order += 1
        heappush(self._events, (at, self._order, event))

    # ------------------------------------------------------------------ arrivals

    def _open_arrival(self, index: int) -> None:
        gaps = self._traffics[index].gaps
        assert gaps is not None
        if self.now < self._until_s:
            self._arrive(index)
            self._at(self.now + next(gaps), partial(self._open_arrival, index))

    def _arrive(self, index: int) -> None:
        if self.now >= self._until_s:
            return
        work = self._work(index)
        refusal = self.scheduler.submit(work, self.now)
        if refusal is None:
            self._dispatch()
        else:
            self.tallies[index].refused += 1
            self._again(index, max(refusal.retry_after_s, 1e-3))

    def _work(self, index: int) -> Work:
        traffic = self._traffics[index]
        self._next_id += 1
        return Work(
            id=self._next_id,
            tenant_id=traffic.tenant_id,
            sla_class=traffic.sla_class,
            rows=1,
            tokens=traffic.tokens(),
            arrived=self.now,
            deadline=self.now + traffic.deadline_s,
            weight=traffic.weight,
            max_batch_size=traffic.max_batch_size,
            max_wait_s=traffic.max_wait_s,
            max_queue=traffic.max_queue,
            late_policy=traffic.late_policy,
            target_s=traffic.target_s,
            payload=index,
        )

    def _again(self, index: int, after_s: float) -> None:
        if self._traffics[index].outstanding:
            self._at(self.now + after_s, partial(self._arrive, index))

    # ------------------------------------------------------------------ the device

    def _dispatch(self) -> None:
        """What the engine thread does when it is free."""
        if self._stack:
            return
        self._answer_expired(self.scheduler.expired(self.now))
        decision = self.scheduler.next_batch(self.now)
        if isinstance(decision, Batch):
            self._begin(decision)
        elif decision is not None:
            self._at(decision, self._dispatch)

    def _answer_expired(self, expired: list[tuple[Work, Refusal]]) -> None:
        for work, refusal in expired:
            self.tallies[work.payload].expired += 1
            self._again(work.payload, max(refusal.retry_after_s, 1e-3))

    def _begin(self, batch: Batch) -> None:
        if self._on_batch is not None:
            self._on_batch(batch, self.now)
        time_s = self._device.time_s(batch.rows, batch.tokens)
        self._stack.append(_Run(batch, time_s / self._device.segments, self._device.segments))
        self._continue()

    def _continue(self) -> None:
        self._at(self.now + self._stack[-1].piece_s, self._piece_ended)

    def _piece_ended(self) -> None:
        run = self._stack[-1]
        self.busy_s += run.piece_s
        run.pieces_left -= 1
        if run.pieces_left:
            urgent = self.scheduler.urgent_batch(self.now, run.batch)
            if urgent is not None:
                self._begin(urgent)
                return
            self._continue()
        else:
            self._finish(run)

    def _finish(self, run: _Run) -> None:
        self._stack.pop()
        shares = self.scheduler.complete(run.batch, run.piece_s * self._device.segments, self.now)
        for work, share_us in zip(run.batch.works, shares, strict=True):
            self._answer(work, share_us / 1e6)
        if self._stack:
            self._continue()
        else:
            self._dispatch()

    def _answer(self, work: Work, device_s: float) -> None:
        tally = self.tallies[work.payload]
        latency_s = self.now - work.arrived
        tally.latencies_s.append(latency_s)
        tally.kept += latency_s <= self._traffics[work.payload].target_s
        tally.device_s += device_s
        self._again(work.payload, self._traffics[work.payload].think_s)
