"""May this work enter the queue: bounds first, then whether it can still meet its deadline.

Predictions of a queue ahead are estimates, but honest ones: they count the running batch's remainder, the
work that will go first by the scheduler's own order, and the work itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from serving.scheduling.work import QueueShare, Refusal, Work


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a work would meet if it entered now. Times in seconds."""

    ahead_s: float
    """Until the device is free for it."""
    alone_s: float
    """Its own time on the device."""
    queued: int
    """Works of its tenant and class that wait already."""
    queued_total: int

    @property
    def predicted_s(self) -> float:
        return self.ahead_s + self.alone_s


def refuse_full(work: Work, outlook: Outlook, max_queued: int) -> Refusal | None:
    """The bounds of the tenant's class and of the whole replica."""
    if outlook.queued >= work.max_queue:
        return _full(work, outlook.queued, work.max_queue, outlook, "its SLA profile allows")
    if outlook.queued_total >= max_queued:
        return _full(work, outlook.queued_total, max_queued, outlook, "this replica can hold")
    return None


def refuse_share(work: Work, share: QueueShare, queued: int, backlog_s: float) -> Refusal:
    """As many wait already as a quota lets."""
    return Refusal(
        code="queue_share_full",
        message=f"The quota {share.name} lets {share.limit} wait at a replica, and {queued} do",
        numbers={
            "quota": share.name,
            "quota_id": share.quota_id,
            "limit": share.limit,
            "used": queued,
            "reserved": 0,
            "sla_class": work.sla_class,
        },
        retry_after_s=max(0.05, backlog_s),
    )


def refuse_parts(works: Sequence[Work], queued: int, queued_total: int, max_queued: int) -> Refusal | None:
    """A request cut into so many works that they cannot all be queued: now, or ever."""
    parts, limit = len(works), min(works[0].max_queue, max_queued)
    if parts > limit:
        return Refusal(
            code="invalid_request",
            message=f"the request makes {parts} batches, more than the {limit} that may be queued at once",
            numbers={"parts": parts, "limit": limit, "max_batch_size": works[0].max_batch_size},
        )
    if queued + parts <= works[0].max_queue and queued_total + parts <= max_queued:
        return None
    return Refusal(
        code="queue_full",
        message=f"{queued} requests wait already, which leaves no room for the {parts} batches of this one",
        numbers={"queued_requests": queued, "parts": parts, "limit": limit, "sla_class": works[0].sla_class},
        retry_after_s=0.5,
    )


def refuse_late(work: Work, outlook: Outlook, now: float) -> Refusal | None:
    """A deadline that is over, or that the prediction says cannot be met."""
    left_s = work.deadline - now
    if outlook.predicted_s <= left_s:
        return None
    return deadline_refusal(work, left_s, outlook.predicted_s, outlook.queued_total)


def deadline_refusal(work: Work, left_s: float, predicted_s: float, queued_total: int) -> Refusal:
    return Refusal(
        code="deadline_unattainable",
        message=(
            f"the answer is predicted in {predicted_s * 1e3:.1f} ms, "
            f"but {max(left_s, 0.0) * 1e3:.1f} ms are left of the deadline"
        ),
        numbers={
            "predicted_ms": round(predicted_s * 1e3, 1),
            "left_ms": round(max(left_s, 0.0) * 1e3, 1),
            "queued_requests": queued_total,
            "sla_class": work.sla_class,
        },
        retry_after_s=max(0.05, predicted_s - max(left_s, 0.0)),
    )


def draining_refusal() -> Refusal:
    return Refusal(code="draining", message="this replica is finishing its work before it stops")


def _full(work: Work, queued: int, limit: int, outlook: Outlook, whose: str) -> Refusal:
    return Refusal(
        code="queue_full",
        message=f"{queued} requests wait already, as many as {whose}",
        numbers={"queued_requests": queued, "limit": limit, "sla_class": work.sla_class},
        retry_after_s=max(0.05, outlook.ahead_s),
    )
