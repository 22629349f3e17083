"""What happened while the charts moved: deployments, versions, replicas' deaths, promises, limits, alerts.

All of it is in the audit trail, or in the history of alerts, already: nothing is kept twice. Whoever may read the
trail sees the marks.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from django.db.models import Q

from serving.control.alerts.models import AlertTransition
from tenants.models import AuditEvent

Kind = Literal["deployment", "version", "replica", "promise", "limit", "alert"]
PREFIXES: dict[str, Kind] = {
    "deployment.": "deployment",
    "alias.": "deployment",
    "rollout.": "deployment",
    "version.": "version",
    "replica.": "replica",
    "profile.": "promise",
    "quota.": "limit",
    "alert.": "alert",
}
"""How an event's action begins → what kind of mark it is. What begins otherwise moves no chart."""
MAX_MARKS = 100


@dataclass(frozen=True, slots=True)
class Mark:
    at: float
    """Unix seconds."""
    kind: Kind
    action: str
    target: str
    actor: str
    """Of an alert its severity."""
    event_id: str
    """In the audit trail; empty for an alert that fired or was over."""


def kind_of(action: str) -> Kind | None:
    """The kind of mark an audited action is, if any. Pure."""
    return next((kind for prefix, kind in PREFIXES.items() if action.startswith(prefix)), None)


def marks(since: datetime, until: datetime) -> list[Mark]:
    """The newest `MAX_MARKS` of a span within the caller's scope, oldest first."""
    matches = Q()
    for prefix in PREFIXES:
        matches |= Q(action__startswith=prefix)
    events = AuditEvent.objects.filter(matches, at__gte=since, at__lt=until).order_by("-seq")[:MAX_MARKS]
    moved = AlertTransition.objects.filter(at__gte=since, at__lt=until)[:MAX_MARKS]
    found = [mark for event in events if (mark := _mark(event))] + [_mark_of_alert(each) for each in moved]
    return sorted(found, key=lambda mark: mark.at)[-MAX_MARKS:]


def _mark_of_alert(moved: AlertTransition) -> Mark:
    return Mark(moved.at.timestamp(), "alert", f"alert.{moved.state}", moved.rule_name, moved.severity, "")


def _mark(event: AuditEvent) -> Mark | None:
    kind = kind_of(event.action)
    if kind is None:
        return None
    return Mark(event.at.timestamp(), kind, event.action, event.target_name, event.actor_name, event.event_id)
