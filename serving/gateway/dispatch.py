"""The life of a request in flight: sent, answered, retried once, timed out or abandoned.

Every `Pending` gets exactly one outcome. What a worker spent on a request nobody waits for any more is
still accounted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from serving.errors import (
    ClientClosedRequest,
    DataPlaneError,
    DeadlineUnattainable,
    InvalidRequest,
    ModelNotReady,
    PoisonedRequest,
    QueueFull,
    ReplicaLost,
    from_code,
)
from serving.gateway.deadlines import TICK_S, Wheel
from serving.gateway.pending import Answer, OnOutcome, Payload, Pending
from serving.gateway.replicas import Replica, ReplicaPool
from serving.gateway.routing import Lane
from serving.wire import Failure, FrameError, Infer, Result, Stages

MAX_IN_FLIGHT = 16384
MAX_DEATHS = 2
LATE_FACTOR = 4
LATE_AT_LEAST_S = 60.0
"""Work that may run late (`degrade`, `run`) is waited for this long, or four deadlines."""

OnLateStages = Callable[[Pending, Stages], None]


class Dispatcher:
    def __init__(self, on_late_stages: OnLateStages) -> None:
        """`on_late_stages` is told what an abandoned request used after all."""
        self.pool = ReplicaPool(self)
        self._on_late_stages = on_late_stages
        self._wheel: Wheel[Pending] = Wheel(time.monotonic())
        self._last_id = 0
        self.in_flight = 0

    def submit(
        self,
        lane: Lane,
        key_id: str,
        payload: Payload,
        deadline: float,
        on_outcome: OnOutcome,
        traceparent: str = "",
    ) -> Pending:
        """Send a request to a replica. `deadline` in monotonic seconds.

        Raises `ModelNotReady` or `QueueFull` at once; later outcomes come by `on_outcome`.
        """
        if self.in_flight >= MAX_IN_FLIGHT:
            numbers = {"in_flight": self.in_flight, "limit": MAX_IN_FLIGHT}
            raise QueueFull(
                "this gateway has too many requests in flight", retry_after_s=0.5, numbers=numbers
            )
        replica = self.pool.choose(lane.version.id)
        if replica is None:
            raise self._not_ready(lane)
        self._last_id += 1
        expires = deadline if lane.refuses_late else _late(deadline)
        pending = Pending(self._last_id, lane, key_id, payload, deadline, expires, on_outcome)
        pending.traceparent = traceparent
        try:
            self._send(pending, replica)
        except FrameError as error:
            raise InvalidRequest(f"the request is too large: {error}") from None
        self.in_flight += 1
        pending.slot = self._wheel.add(pending, expires)
        return pending

    def abandon(self, pending: Pending) -> None:
        """The client is gone: cancel what can be cancelled, account what ran."""
        if pending.is_open:
            self._give_up(pending, ClientClosedRequest("the client is gone"))

    async def watch_deadlines(self) -> None:
        """Runs for as long as the gateway does."""
        while True:
            await asyncio.sleep(TICK_S)
            self.expire(time.monotonic())

    def expire(self, now: float) -> None:
        """Refuse what is past its time."""
        for pending in self._wheel.due(now):
            if pending.is_open:
                self._give_up(pending, _expired(pending))

    def close(self) -> None:
        self.pool.close()

    # ------------------------------------------------------------ outcomes

    def on_result(self, pending: Pending, result: Result, body: memoryview) -> None:
        if pending.is_open:
            self._close(pending)
            pending.on_outcome(Answer(result, body))
        else:
            self._on_late_stages(pending, result.stages)

    def on_failure(self, pending: Pending, failure: Failure) -> None:
        if not pending.is_open:
            if failure.stages is not None:
                self._on_late_stages(pending, failure.stages)
            return
        if failure.code in _NOT_HERE and self._retry_elsewhere(pending):
            return
        retry_after_s = failure.retry_after_ms / 1000 or None
        error = from_code(failure.code, failure.message, numbers=failure.numbers, retry_after_s=retry_after_s)
        self._fail(pending, error)
        if failure.stages is not None:
            self._on_late_stages(pending, failure.stages)

    def on_link_lost(self, lost: list[Pending]) -> None:
        for pending in lost:
            if pending.is_open:
                self._survive(pending)

    def _survive(self, pending: Pending) -> None:
        """Nothing was answered yet, so it may run again: once, elsewhere, within its deadline."""
        pending.deaths += 1
        if pending.deaths >= MAX_DEATHS:
            self._fail(pending, PoisonedRequest("two workers died while this request ran on them"))
        elif not self._retry_elsewhere(pending):
            retry_after_s = self.pool.retry_after_s(pending.lane.version.id)
            message = "the worker died and no other replica of this model is ready"
            self._fail(pending, ReplicaLost(message, retry_after_s=retry_after_s))

    def _retry_elsewhere(self, pending: Pending) -> bool:
        replica = self.pool.choose(pending.lane.version.id)
        if replica is None or replica is pending.replica or time.monotonic() >= pending.expires:
            return False
        self._send(pending, replica)
        return True

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
        if pending.replica is not None:
            pending.replica.cancel(pending)
        self._fail(pending, error)

    def _send(self, pending: Pending, replica: Replica) -> None:
        assert pending.payload is not None
        lane, payload = pending.lane, pending.payload
        budget_us = max(1, int((pending.deadline - time.monotonic()) * 1e6))
        infer = Infer(
            lane.tenant_id,
            lane.profile.sla_class,
            budget_us,
            payload.rows,
            payload.row_tokens,
            payload.heads,
            lane.profile.weight,
            lane.profile.max_batch_size,
            lane.max_wait_us,
            lane.profile.max_queue,
            lane.profile.late_policy,
            lane.target_us,
            pending.deaths > 0,
            traceparent=pending.traceparent,
        )
        replica.send(pending, infer)

    def _not_ready(self, lane: Lane) -> ModelNotReady:
        retry_after_s = self.pool.retry_after_s(lane.version.id)
        return ModelNotReady(
            f"no replica of {lane.model!r} version {lane.version.number} is ready",
            retry_after_s=retry_after_s,
        )


_NOT_HERE = ("draining", "model_not_ready")
"""A worker's own "not me, not now": another replica may take it."""


def _late(deadline: float) -> float:
    now = time.monotonic()
    return now + max(LATE_AT_LEAST_S, (deadline - now) * LATE_FACTOR)


def _expired(pending: Pending) -> DeadlineUnattainable:
    return DeadlineUnattainable(
        "the deadline passed before the answer was ready",
        retry_after_s=1.0,
        numbers={"deadline_ms": pending.lane.profile.deadline_ms},
    )
