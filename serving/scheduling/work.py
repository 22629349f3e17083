"""The words of scheduling: a unit of work, the batch it runs in, the refusal it may meet instead.

All times are seconds on one monotonic clock, passed in as `now`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from serving.contract import CloseReason, LatePolicy, SlaClass

Lane = SlaClass
"""The queue a work waits in: its class, or a lower one after it was demoted or degraded."""
LOWER: dict[Lane, Lane] = {"interactive": "standard", "standard": "batch", "batch": "batch"}


class QueueShare(NamedTuple):
    """A quota on what waits here."""

    quota_id: str
    name: str
    limit: int
    """Works."""


@dataclass(slots=True, eq=False)
class Work:
    """One schedulable request: `rows` items that run together and are answered together.

    A request larger than its profile's `max_batch_size` is cut into several `Work`s by the intake.
    """

    id: int
    tenant_id: str
    sla_class: SlaClass
    rows: int
    tokens: int
    """Tokens of all rows; engines without tokens count one token per row."""
    arrived: float
    deadline: float
    weight: float = 1.0
    max_batch_size: int = 32
    max_wait_s: float = 0.0
    max_queue: int = 1024
    late_policy: LatePolicy = "refuse"
    target_s: float = 0.0
    """The profile's p95 target, which sizes the batches that run before it; 0 takes the deadline."""
    is_suspect: bool = False
    """Runs alone: it was in flight when a worker died."""
    queue_shares: tuple[QueueShare, ...] = ()
    """How many may wait beside it at most, of its tenant or of a part of what that sends."""
    payload: Any = None
    """The intake's own: the scheduler never looks inside."""
    picked: float = 0.0
    """When the scheduler put it into a batch."""
    lane: Lane = "batch"
    """Set by the scheduler on submit."""
    latest_start: float = 0.0
    """Set by the scheduler: started later, even alone, it is predicted to miss its deadline."""
    charged_s: float = 0.0
    """Set by the scheduler: device time its tenant was charged when it was picked."""
    spent_s: float = 0.0
    """Set by the scheduler: what it took from its tenant's interactive bucket on submit."""
    is_demoted: bool = False
    """Set by the scheduler: interactive, but beyond its tenant's share of the device for now."""

    @property
    def target(self) -> float:
        """Seconds within which the profile wants it answered."""
        return self.target_s or max(self.deadline - self.arrived, 0.0)

    def under(self, terms: Terms) -> Work:
        """A copy with other terms (queues know their entries by identity). What is larger stays whole."""
        return replace(
            self,
            sla_class=terms.sla_class,
            deadline=terms.deadline,
            weight=terms.weight,
            max_batch_size=max(self.rows, terms.max_batch_size),
            max_wait_s=terms.max_wait_s,
            max_queue=terms.max_queue,
            late_policy=terms.late_policy,
            target_s=terms.target_s,
            spent_s=0.0,
            is_demoted=False,
        )


@dataclass(frozen=True, slots=True)
class Terms:
    """What a profile says about a work; the fields mean what they mean in `Work`."""

    sla_class: SlaClass
    deadline: float
    weight: float
    max_batch_size: int
    max_wait_s: float
    max_queue: int
    late_policy: LatePolicy
    target_s: float


@dataclass(slots=True, eq=False)
class Batch:
    """What runs together on the device, and why it was closed."""

    id: int
    works: list[Work]
    rows: int
    tokens: int
    close: CloseReason
    predicted_s: float
    is_urgent: bool
    """Holds interactive work only; may run at a layer boundary of a batch that is not urgent."""
    picked: float = 0.0
    interrupted_s: float = 0.0
    """Device time that urgent batches took while it stood still."""
    boundaries: int = 0
    """How often the engine offered a pause while it ran; counted by `Scheduler.urgent_batch`."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """An immediate no, with the numbers behind it. `code` is one of `serving.errors`."""

    code: str
    message: str
    numbers: dict[str, int | float | str] = field(default_factory=dict)
    retry_after_s: float = 0.0
