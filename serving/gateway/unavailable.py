"""Why the dispatcher says no, in words and numbers."""

from __future__ import annotations

from serving.errors import (
    CircuitOpen,
    DataPlaneError,
    DeadlineUnattainable,
    ModelNotReady,
    Overloaded,
    ReplicaLost,
)
from serving.gateway.deadlines import MAX_STREAM_S
from serving.gateway.pending import Pending
from serving.gateway.retries import SHARE
from serving.gateway.routing import Lane
from serving.gateway.shedding import LEAST_S
from serving.gateway.versions import UNKNOWN_LOAD_S, ServedVersion


def overloaded(lane: Lane, in_flight: int, limit: int, served: ServedVersion | None) -> Overloaded:
    """The class is shed: by the gateway's own room, or by what its version has to do for higher classes."""
    sla_class = lane.profile.sla_class
    if in_flight >= limit:
        return Overloaded(
            f"this gateway has {in_flight} requests in flight and takes no more {sla_class} work",
            retry_after_s=LEAST_S,
            numbers={"sla_class": sla_class, "in_flight": in_flight, "limit": limit},
        )
    work_s, deadline_s = (
        (served.shedding.now.work_s, served.shedding.now.deadline_s) if served else (0.0, 0.0)
    )
    return Overloaded(
        f"{work_s * 1e3:.0f} ms of more urgent work wait, so {sla_class} work is turned away",
        retry_after_s=max(LEAST_S, work_s - deadline_s),
        numbers={
            "sla_class": sla_class,
            "waiting_work_ms": round(work_s * 1e3),
            "deadline_ms": round(deadline_s * 1e3),
        },
    )


def nobody(lane: Lane, served: ServedVersion | None, now: float) -> DataPlaneError:
    """Nobody can be sent this request: no replica accepts, or the circuits of all that do are open."""
    named = f"{lane.model!r} version {lane.version.number}"
    if served is None or not served.accepting:
        retry_after_s = UNKNOWN_LOAD_S if served is None else served.retry_after_s(now)
        return ModelNotReady(f"no replica of {named} is ready", retry_after_s=retry_after_s)
    wait_s = served.circuit_wait_s(lane.tenant_id, now)
    return CircuitOpen(
        f"{named} has failed too often lately; it is being tried with one request at a time",
        retry_after_s=max(0.1, wait_s),
        numbers={"replicas": len(served.accepting), "retry_in_ms": round(wait_s * 1e3)},
    )


def lost(served: ServedVersion | None, now: float) -> ReplicaLost:
    retry_after_s = UNKNOWN_LOAD_S if served is None else served.retry_after_s(now)
    if served is not None and served.accepting and served.budget.left(served.sent) < 1:
        return ReplicaLost(
            "the worker died, and too many requests were retried lately to retry this one",
            retry_after_s=1.0,
            numbers={"retried": served.budget.spent, "requests": served.sent, "retry_share": SHARE},
        )
    message = "the worker died and no other replica of this model is ready"
    return ReplicaLost(message, retry_after_s=retry_after_s)


def broke_off() -> ReplicaLost:
    return ReplicaLost("the worker died in the middle of the answer")


def expired(pending: Pending) -> DeadlineUnattainable:
    if pending.has_begun:
        numbers = {"max_stream_s": MAX_STREAM_S}
        return DeadlineUnattainable("the stream took longer than streams may", numbers=numbers)
    return DeadlineUnattainable(
        "the deadline passed before the answer was ready",
        retry_after_s=1.0,
        numbers={"deadline_ms": pending.lane.profile.deadline_ms},
    )
