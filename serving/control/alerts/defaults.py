"""The rules a platform begins with. Installed once each; whoever changes, switches off or deletes one keeps that."""

from __future__ import annotations

from typing import NamedTuple

from serving.control.alerts.rules import BurnRate, Condition, Pair, Severity, Threshold

HOUR_S = 3600
DAY_S = 86_400
_SERIES = ("tenant_id", "model")


class Shipped(NamedTuple):
    """A rule as shipped. `topic` groups rules that speak of one trouble: the critical one silences the milder."""

    name: str
    summary: str
    severity: Severity
    condition: Condition
    topic: str
    for_s: float = 0.0
    keep_firing_s: float = 60.0
    by: tuple[str, ...] = ()


SHIPPED: tuple[Shipped, ...] = (
    Shipped(
        "SLA error budget burns fast",
        "At this rate the month's error budget is gone within two days. Look at the stages of the model first.",
        "critical", BurnRate(pairs=(Pair(HOUR_S, 300, 14.4),)), "sla", by=_SERIES,
    ),
    Shipped(
        "SLA error budget burns slowly",
        "At this rate the month's error budget is gone within five days.",
        "warning", BurnRate(pairs=(Pair(6 * HOUR_S, 1800, 6.0),)), "sla", keep_firing_s=300, by=_SERIES,
    ),
    Shipped(
        "Requests fail",
        "More than one in twenty requests of the last minute ended in an error of the platform.",
        "warning", Threshold("error_share", "above", 0.05, min_requests=20), "errors", for_s=5, by=_SERIES,
    ),
    Shipped(
        "No replica is ready",
        "A model that should be served has no ready replica: its requests are refused.",
        "critical", Threshold("replicas_ready", "below", 1), "replicas", for_s=5, keep_firing_s=10,
    ),
    Shipped(
        "Replicas are missing",
        "Fewer replicas are ready than wanted. Reasons are on the Fleet page.",
        "warning", Threshold("replicas_missing", "above", 0), "replicas", for_s=60,
    ),
    Shipped(
        "A replica crashes again and again",
        "It was restarted three times or more within ten minutes. Its last reason says why.",
        "critical", Threshold("replica_restarts", "above", 2), "crash_loop", keep_firing_s=120,
    ),
    Shipped(
        "A replica starts later than promised",
        "It takes longer to become ready than its version's measured cold start allows.",
        "warning", Threshold("cold_start_late_s", "above", 0), "cold_start",
    ),
    Shipped(
        "Requests wait long in the queue",
        "Nearly every request of the last minute waited over a second: more replicas, or less load.",
        "warning", Threshold("queue_p95_ms", "above", 1000, min_requests=20), "queue", for_s=30, by=_SERIES,
    ),
    Shipped(
        "A budget is nearly used up", "Four fifths of a budget are used in its present window.",
        "info", Threshold("budget_used_share", "above", 0.8), "budget", keep_firing_s=0,
    ),
    Shipped(
        "A budget is used up", "Requests beyond it are refused until its window ends.",
        "warning", Threshold("budget_used_share", "above", 0.9999), "budget", keep_firing_s=0,
    ),
    Shipped(
        "A key ends within two weeks", "Roll it: the new one works beside it until it ends.",
        "info", Threshold("key_expires_in_s", "below", 14 * DAY_S), "key", keep_firing_s=0,
    ),
    Shipped(
        "A key ends within three days", "Whoever uses it is refused after that. Roll it now.",
        "warning", Threshold("key_expires_in_s", "below", 3 * DAY_S), "key", keep_firing_s=0,
    ),
    Shipped(
        "No gateway reports", "For most of the last minute no gateway said anything: none runs, or Valkey is away.",
        "critical", Threshold("gateway_frames_covered_share", "below", 0.25), "gateways", for_s=10, keep_firing_s=10,
    ),
    Shipped(
        "A host is silent", "Its agent was not heard for half a minute: what runs there is not known.",
        "critical", Threshold("host_silent_s", "above", 30), "hosts", keep_firing_s=10,
    ),
    Shipped(
        "A rollout failed", "Its verdict is against the new version; it was rolled back, or waits for somebody.",
        "critical", Threshold("rollout_failed", "above", 0), "rollout", keep_firing_s=0,
    ),
    Shipped(
        "A certificate ends within two weeks", "Renew it before clients refuse to connect.",
        "warning", Threshold("certificate_expires_in_s", "below", 14 * DAY_S), "certificate", keep_firing_s=0,
    ),
)  # fmt: skip
