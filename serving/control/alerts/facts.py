"""Facts: what rules may be about besides the metrics of requests. Each is read from what the control plane knows.

A fact's list is whole: what is not on it (a replica that is gone, a budget that was lifted) is no longer true.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from serving.telemetry.metrics import Direction


class Fact(NamedTuple):
    """One thing's value now; None while it cannot be told."""

    labels: dict[str, str]
    value: float | None


@dataclass(frozen=True, slots=True)
class FactMetric:
    """One line of the catalog of facts."""

    name: str
    unit: str
    text: str
    direction: Direction
    labels: tuple[str, ...]
    """What its alerts are told apart by. Those with `tenant_id` may be asked by the tenant itself."""


_ALL = (
    FactMetric(
        "budget_used_share", "share", "Share of a budget used in its present window", "worse",
        ("tenant_id", "quota", "quota_id"),
    ),
    FactMetric(
        "key_expires_in_s", "s", "Seconds until an API key in use ends", "better", ("tenant_id", "key", "key_id")
    ),
    FactMetric("replicas_ready", "replicas", "Ready replicas of a model that wants some", "better", ("model",)),
    FactMetric("replicas_missing", "replicas", "Wanted replicas of a model that are not ready", "worse", ("model",)),
    FactMetric(
        "replica_restarts", "restarts", "Restarts of a replica in the last ten minutes", "worse",
        ("model", "replica_id"),
    ),
    FactMetric(
        "cold_start_late_s", "s", "Seconds a replica takes to become ready beyond what was promised", "worse",
        ("model", "replica_id"),
    ),
    FactMetric("host_silent_s", "s", "Seconds since a host's agent was heard", "worse", ("host",)),
    FactMetric("gateway_frames_covered_share", "share", "Share of the last minute any gateway reported on", "better", ()),
    FactMetric("certificate_expires_in_s", "s", "Seconds until a certificate ends", "better", ("certificate",)),
    FactMetric("rollout_failed", "rollouts", "1 while a rollout's verdict is that it failed", "worse", ("model", "rollout_id")),
)  # fmt: skip

FACTS: dict[str, FactMetric] = {fact.name: fact for fact in _ALL}
