"""The scheduler in virtual time: discrete-event devices, arrivals, and what each tenant got.

It drives the same `Scheduler` the workers run, one per replica, so that a policy can be judged in
milliseconds of real time (tests, the planner). Among replicas a request chooses as gateways do: of two drawn
at random the one with less predicted work outstanding (Mitzenmacher, "The Power of Two Choices in Randomized
Load Balancing", 2001). Randomness comes from the caller: iterators of gaps and sizes, a noise function, and
what draws replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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

    def expected_s(self, rows: int, tokens: int) -> float:
        curve = self.curve
        return (curve.a_ms + curve.b_ms_per_row * rows + curve.c_ms_per_token * tokens) / 1e3

    def time_s(self, rows: int, tokens: int) -> float:
        return self.expected_s(rows, tokens) * self.noise()


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


class _Replica:
    """A scheduler, its device, and what was sent to it and is not answered."""

    __slots__ = ("busy_s", "outstanding_s", "scheduler", "stack")

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.stack: list[_Run] = []
        self.outstanding_s = 0.0
        self.busy_s = 0.0


@dataclass(slots=True)
class _Sent:
    """Payload of a work: whose it is, and where it waits."""

    traffic: int
    replica: _Replica
    predicted_s: float


class Simulation:
    """`run(until_s)` plays all traffics; afterwards `tallies[i]` belongs to `traffics[i]`."""

    def __init__(
        self,
        schedulers: Scheduler | Sequence[Scheduler],
        device: Device,
        traffics: list[Traffic],
        *,
        on_batch: Callable[[Batch, float], None] | None = None,
        draw: Callable[[], float] | None = None,
    ) -> None:
        """One scheduler per replica; all devices are alike. `draw` gives numbers from 0 to below 1.

        Raises `ValueError` for several replicas and nothing to draw them by.
        """
        each = [schedulers] if isinstance(schedulers, Scheduler) else schedulers
        if draw is None and len(each) > 1:
            raise ValueError("several replicas are chosen among at random")
        self._replicas = [_Replica(scheduler) for scheduler in each]
        self._draw = draw
        self.tallies = [Tally() for _ in traffics]
        self.idle_while_waiting_s = 0.0
        """Time in which a work waited somewhere and its device did nothing; of the first replica."""
        self.now = 0.0
        self._device = device
        self._traffics = traffics
        self._on_batch = on_batch
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0
        self._next_id = 0
        self._until_s = 0.0

    @property
    def busy_s(self) -> float:
        """Device time used, of all replicas."""
        return sum(replica.busy_s for replica in self._replicas)

    def run(self, until_s: float, *, drains: bool = True) -> None:
        """Arrivals stop at `until_s`; what is queued then still runs, unless `drains` is false."""
        self._until_s = until_s
        for index, traffic in enumerate(self._traffics):
            self._next_arrival(index)
            for _ in range(traffic.outstanding):
                self._at(self.now, partial(self._arrive, index))
        while self._events and (drains or self._events[0][0] <= until_s):
            self._step()
        self.now = self.now if drains else until_s

    def _step(self) -> None:
        at, _, event = heappop(self._events)
        first = self._replicas[0]
        if not first.stack and first.scheduler.queued_work:
            self.idle_while_waiting_s += at - self.now
        self.now = at
        event()

    def _at(self, at: float, event: Callable[[], None]) -> None:
        self._order += 1
        heappush(self._events, (at, self._order, event))

    # ------------------------------------------------------------------ arrivals

    def _next_arrival(self, index: int) -> None:
        gaps = self._traffics[index].gaps
        gap_s = None if gaps is None else next(gaps, None)
        if gap_s is not None:
            self._at(self.now + gap_s, partial(self._open_arrival, index))

    def _open_arrival(self, index: int) -> None:
        if self.now < self._until_s:
            self._arrive(index)
            self._next_arrival(index)

    def _arrive(self, index: int) -> None:
        if self.now >= self._until_s:
            return
        replica = self._choose()
        work = self._work(index, replica)
        refusal = replica.scheduler.submit(work, self.now)
        if refusal is None:
            replica.outstanding_s += work.payload.predicted_s
            self._dispatch(replica)
        else:
            self.tallies[index].refused += 1
            self._again(index, max(refusal.retry_after_s, 1e-3))

    def _choose(self) -> _Replica:
        """Of two the one with less outstanding."""
        replicas, draw = self._replicas, self._draw
        if draw is None:
            return replicas[0]
        first, second = (replicas[int(draw() * len(replicas))] for _ in range(2))
        return first if first.outstanding_s <= second.outstanding_s else second

    def _work(self, index: int, replica: _Replica) -> Work:
        traffic = self._traffics[index]
        tokens = traffic.tokens()
        self._next_id += 1
        return Work(
            id=self._next_id,
            tenant_id=traffic.tenant_id,
            sla_class=traffic.sla_class,
            rows=1,
            tokens=tokens,
            arrived=self.now,
            deadline=self.now + traffic.deadline_s,
            weight=traffic.weight,
            max_batch_size=traffic.max_batch_size,
            max_wait_s=traffic.max_wait_s,
            max_queue=traffic.max_queue,
            late_policy=traffic.late_policy,
            target_s=traffic.target_s,
            payload=_Sent(index, replica, self._device.expected_s(1, tokens)),
        )

    def _again(self, index: int, after_s: float) -> None:
        if self._traffics[index].outstanding:
            self._at(self.now + after_s, partial(self._arrive, index))

    # ------------------------------------------------------------------ the devices

    def _dispatch(self, replica: _Replica) -> None:
        """What the engine thread does when it is free."""
        if replica.stack:
            return
        self._answer_expired(replica.scheduler.expired(self.now))
        decision = replica.scheduler.next_batch(self.now)
        if isinstance(decision, Batch):
            self._begin(replica, decision)
        elif decision is not None:
            self._at(decision, partial(self._dispatch, replica))

    def _answer_expired(self, expired: list[tuple[Work, Refusal]]) -> None:
        for work, refusal in expired:
            sent: _Sent = work.payload
            sent.replica.outstanding_s -= sent.predicted_s
            self.tallies[sent.traffic].expired += 1
            self._again(sent.traffic, max(refusal.retry_after_s, 1e-3))

    def _begin(self, replica: _Replica, batch: Batch) -> None:
        if self._on_batch is not None:
            self._on_batch(batch, self.now)
        time_s = self._device.time_s(batch.rows, batch.tokens)
        replica.stack.append(_Run(batch, time_s / self._device.segments, self._device.segments))
        self._continue(replica)

    def _continue(self, replica: _Replica) -> None:
        self._at(self.now + replica.stack[-1].piece_s, partial(self._piece_ended, replica))

    def _piece_ended(self, replica: _Replica) -> None:
        run = replica.stack[-1]
        replica.busy_s += run.piece_s
        run.pieces_left -= 1
        if not run.pieces_left:
            self._finish(replica, run)
            return
        urgent = replica.scheduler.urgent_batch(self.now, run.batch)
        if urgent is not None:
            self._begin(replica, urgent)
        else:
            self._continue(replica)

    def _finish(self, replica: _Replica, run: _Run) -> None:
        replica.stack.pop()
        shares = replica.scheduler.complete(run.batch, run.piece_s * self._device.segments, self.now)
        for work, share_us in zip(run.batch.works, shares, strict=True):
            self._answer(work, share_us / 1e6)
        if replica.stack:
            self._continue(replica)
        else:
            self._dispatch(replica)

    def _answer(self, work: Work, device_s: float) -> None:
        sent: _Sent = work.payload
        sent.replica.outstanding_s -= sent.predicted_s
        traffic, tally = self._traffics[sent.traffic], self.tallies[sent.traffic]
        latency_s = self.now - work.arrived
        tally.latencies_s.append(latency_s)
        tally.kept += latency_s <= traffic.target_s
        tally.device_s += device_s
        self._again(sent.traffic, traffic.think_s)
