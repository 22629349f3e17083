"""The life of a request in flight: sent, answered, retried once, timed out or abandoned.

Every `Pending` gets exactly one outcome. What a worker spent on a request nobody waits for any more is
still accounted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import msgspec

from serving.errors import (
    ClientClosedRequest,
    DataPlaneError,
    InvalidRequest,
    PoisonedRequest,
    from_code,
)
from serving.gateway import unavailable
from serving.gateway.deadlines import MAX_STREAM_S, TICK_S, Wheel
from serving.gateway.pending import Answer, ChunkSink, OnOutcome, Payload, Pending
from serving.gateway.replicas import Replica, ReplicaPool
from serving.gateway.routing import Lane
from serving.gateway.shedding import Headroom
from serving.gateway.versions import ServedVersion
from serving.wire import (
    Amend,
    Chunk,
    Failure,
    FrameError,
    Result,
    Stages,
    Terms,
    encode_infer,
    terms_of,
)

MAX_IN_FLIGHT = 16384
MAX_DEATHS = 2
LATE_FACTOR = 4
LATE_AT_LEAST_S = 60.0
"""Work that may run late (`degrade`, `run`) is waited for this long, or four deadlines."""

TICKS_PER_LOOK = 10
TICKS_PER_SECOND = round(1 / TICK_S)

OnLateStages = Callable[[Pending, Stages], None]
OnCovered = Callable[[DataPlaneError | None], None]
"""Hears None, or why a request may not be tried again."""
Cover = Callable[[Pending, OnCovered], None]


class Dispatcher:
    def __init__(self, on_late_stages: OnLateStages, cover: Cover) -> None:
        """`on_late_stages` is told what an abandoned request used after all, and what a failed try did; `cover` is
        asked whether the request may take as much again.
        """
        self.pool = ReplicaPool(self)
        self._on_late_stages = on_late_stages
        self._cover = cover
        self._wheel: Wheel[Pending] = Wheel(time.monotonic())
        self._last_id = 0
        self._ticks = 0
        self._headroom = Headroom(MAX_IN_FLIGHT)
        self.in_flight = 0

    def submit(
        self,
        lane: Lane,
        key_id: str,
        payload: Payload,
        deadline: float,
        on_outcome: OnOutcome,
        traceparent: str = "",
        stream: ChunkSink | None = None,
        *,
        has_substitute: bool = False,
        queue_shares: tuple[tuple[str, str, int], ...] = (),
    ) -> Pending:
        """Send a request to a replica. `deadline` in monotonic seconds; with a substitute the worker refuses
        what it would answer late.

        Raises `ModelNotReady`, `CircuitOpen` or `Overloaded` at once; later outcomes come by `on_outcome`.
        """
        served = self._admit(lane)
        replica = served.choose(lane.tenant_id) if served is not None else None
        if served is None or replica is None:
            raise unavailable.nobody(lane, served, time.monotonic())
        self._last_id += 1
        expires = deadline if lane.refuses_late else _late(deadline)
        pending = Pending(self._last_id, lane, key_id, payload, deadline, expires, on_outcome, stream)
        pending.traceparent = traceparent
        pending.queue_shares = queue_shares
        if has_substitute:
            pending.late_policy = "refuse"
        try:
            self._send(pending, replica)
        except FrameError as error:
            raise InvalidRequest(f"the request is too large: {error}") from None
        served.sent += 1
        self.in_flight += 1
        pending.slot = self._wheel.add(pending, expires)
        return pending

    def waiting(self) -> list[Pending]:
        """What is in flight now, by replica in the order it was sent."""
        return [pending for replica in self.pool.replicas.values() for pending in replica.in_flight.values()]

    def amend(self, pending: Pending, lane: Lane, deadline: float) -> None:
        """New terms for a request in flight; a worker that runs it already ignores them, and so does a stream
        that has begun: it was in time.
        """
        if pending.has_begun:
            return
        if pending.late_policy == pending.lane.profile.late_policy:
            pending.late_policy = lane.profile.late_policy
        pending.lane, pending.deadline = lane, deadline
        pending.expires = deadline if lane.refuses_late else _late(deadline)
        self._wheel.remove(pending, pending.slot)
        pending.slot = self._wheel.add(pending, pending.expires)
        if pending.replica is not None:
            pending.replica.amend(pending, _amend(pending))

    def abandon(self, pending: Pending) -> None:
        """The client is gone: cancel what can be cancelled, account what ran."""
        if pending.is_open:
            pending.is_cancelled = True
            self._give_up(pending, ClientClosedRequest("the client is gone"))

    async def watch_deadlines(self) -> None:
        """Runs for as long as the gateway does."""
        while True:
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            self.expire(now)
            self._look_around(now)

    def expire(self, now: float) -> None:
        """Refuse what is past its time."""
        for pending in self._wheel.due(now):
            if pending.is_open:
                replica = pending.replica
                if replica is not None and replica.is_stuck(pending, now):
                    replica.did_fail(pending, "timeout")
                self._give_up(pending, unavailable.expired(pending))

    def _look_around(self, now: float) -> None:
        """What need not be known at every request: overload a few times a second, the rest once."""
        self._ticks += 1
        self._headroom.update(self.in_flight)
        if self._ticks % TICKS_PER_LOOK == 0:
            for served in self.pool.served.values():
                served.look_at_load(now)
        if self._ticks % TICKS_PER_SECOND == 0:
            for served in self.pool.served.values():
                served.every_second(now)

    def close(self) -> None:
        self.pool.close()

    # ------------------------------------------------------------ outcomes

    def on_result(self, pending: Pending, result: Result, body: memoryview) -> None:
        replica = pending.replica
        if replica is not None and not replica.breaker.is_calm:
            replica.did_answer(pending)
        if pending.stream is not None and pending.has_begun:
            self.pool.of(pending.lane.version.id).streamed(result.stages.device_us)
        if pending.is_open:
            self._close(pending)
            pending.on_outcome(_new_answer(Answer, (result, body)))
        else:
            self._on_late_stages(pending, result.stages)
            _drop(pending)

    def on_failure(self, pending: Pending, failure: Failure) -> None:
        was_probe = pending.probe is not None
        is_blamed = self._blame(pending, failure.code)
        if failure.stages is not None:
            self._on_late_stages(pending, failure.stages)
        if not pending.is_open:
            _drop(pending)
            return
        retry_after_s = failure.retry_after_ms / 1000 or None
        error = from_code(failure.code, failure.message, numbers=failure.numbers, retry_after_s=retry_after_s)
        # Nobody waits again for a probe that fails: its request is tried where the circuit is closed.
        is_for_another = failure.code in _NOT_HERE or (was_probe and is_blamed)
        if not is_for_another:
            self._fail(pending, error)
        elif failure.stages is None:  # nothing was used: what was reserved is all there
            self._covered(pending, error, None)
        else:
            self._cover(pending, lambda refusal: self._covered(pending, error, refusal))

    def _covered(self, pending: Pending, error: DataPlaneError, refusal: DataPlaneError | None) -> None:
        """Its limits allow another try or not; without one the failure is the answer."""
        if pending.is_open and (refusal is not None or not self._retry_elsewhere(pending)):
            self._fail(pending, error)

    def on_chunk(self, pending: Pending, chunk: Chunk, body: memoryview) -> None:
        """With its first chunk an answer has begun in time; from then on it may take as long as streams may."""
        stream = pending.stream
        if not pending.is_open or stream is None:
            return
        if not stream.has_begun:
            self._wheel.remove(pending, pending.slot)
            pending.expires = time.monotonic() + MAX_STREAM_S
            pending.slot = self._wheel.add(pending, pending.expires)
            if pending.probe is not None and pending.replica is not None:
                pending.replica.did_answer(pending)  # nobody waits for the end of a stream to trust it
        stream.on_chunk(chunk, body)

    def on_link_lost(self, lost: list[Pending]) -> None:
        for pending in sorted(lost, key=_urgency):  # the budget is spent on the urgent first
            if pending.is_open:
                self._survive(pending)
            else:
                _drop(pending)

    def _survive(self, pending: Pending) -> None:
        """Nothing was answered yet, so it may run again: once, elsewhere, within its deadline."""
        pending.deaths += 1
        if pending.has_begun:
            self._fail(pending, unavailable.broke_off())
        elif pending.deaths >= MAX_DEATHS:
            self._fail(pending, PoisonedRequest("two workers died while this request ran on them"))
        elif not self._retry_elsewhere(pending):
            served = self.pool.served.get(pending.lane.version.id)
            self._fail(pending, unavailable.lost(served, time.monotonic()))

    def _retry_elsewhere(self, pending: Pending) -> bool:
        if pending.has_begun:
            return False
        served = self.pool.served.get(pending.lane.version.id)
        replica = served.choose(pending.lane.tenant_id) if served is not None else None
        if served is None or replica is None or replica is pending.replica:
            return False
        if time.monotonic() >= pending.expires or not served.budget.take(served.sent):
            return False
        self._send(pending, replica)
        return True

    def _blame(self, pending: Pending, code: str) -> bool:
        """Whether the failure counts against the replica; told to its breaker."""
        replica = pending.replica
        if replica is None:
            return False
        if code in _ITS_FAULT:
            replica.did_fail(pending, code)
            return True
        if pending.probe is not None:
            replica.did_refuse(pending)
        return False

    def _fail(self, pending: Pending, error: DataPlaneError) -> None:
        self._close(pending)
        pending.on_outcome(error)

    def _close(self, pending: Pending) -> None:
        """There is an outcome: let go of everything that was kept for another try."""
        pending.is_open = False
        self.in_flight -= 1
        self._wheel.remove(pending, pending.slot)
        pending.payload = None

    def _give_up(self, pending: Pending, error: DataPlaneError) -> None:
        replica, reservation = pending.replica, pending.reservation
        if replica is not None:
            replica.cancel(pending)
            if reservation is not None and pending.id in replica.in_flight:
                reservation.keep()
        self._fail(pending, error)

    def _send(self, pending: Pending, replica: Replica) -> None:
        """Raises `FrameError` when the request does not fit a frame."""
        payload = pending.payload
        assert payload is not None
        budget_us = int((pending.deadline - time.monotonic()) * 1e6)
        rows, _, row_tokens, heads, parts = payload
        terms = pending.lane.terms if pending.is_plain else _terms(pending)
        frame = encode_infer(
            terms, pending.id, budget_us if budget_us > 0 else 1, rows, row_tokens, heads, parts
        )
        replica.send(pending, frame)

    def _admit(self, lane: Lane) -> ServedVersion | None:
        """The version as it is served here. Raises `Overloaded` while the lane's class is shed."""
        served = self.pool.served.get(lane.version.id)
        limit = self._headroom.limits[lane.rank]
        if self.in_flight >= limit or (served is not None and lane.rank < served.shedding.rank):
            raise unavailable.overloaded(lane, self.in_flight, limit, served)
        return served


_new_answer = tuple.__new__
"""Half the cost of calling the named tuple."""
_NOT_HERE = ("draining", "model_not_ready")
"""A worker's own "not me, not now": another replica may take it."""
_ITS_FAULT = ("engine_failed", "out_of_memory", "internal_error")
"""What counts against a replica, besides its death and its silence."""


def _drop(pending: Pending) -> None:
    """Nothing more is heard of what was given up."""
    if pending.reservation is not None:
        pending.reservation.drop()


def _terms(pending: Pending) -> Terms:
    """Those of its lane, and what is said of this one alone."""
    infer = msgspec.structs.replace(
        pending.lane.infer(),
        late_policy=pending.late_policy,
        is_suspect=pending.deaths > 0,
        stream_credit=0 if pending.stream is None else pending.stream.credit,
        traceparent=pending.traceparent,
        queue_shares=pending.queue_shares,
    )
    return terms_of(infer)


def _amend(pending: Pending) -> Amend:
    lane = pending.lane
    return Amend(
        sla_class=lane.profile.sla_class,
        budget_us=max(1, int((pending.deadline - time.monotonic()) * 1e6)),
        weight=lane.profile.weight,
        max_batch_size=lane.profile.max_batch_size,
        max_wait_us=lane.max_wait_us,
        max_queue=lane.profile.max_queue,
        late_policy=pending.late_policy,
        target_us=lane.target_us,
    )


def _late(deadline: float) -> float:
    now = time.monotonic()
    return now + max(LATE_AT_LEAST_S, (deadline - now) * LATE_FACTOR)


def _urgency(pending: Pending) -> int:
    return -pending.lane.rank
