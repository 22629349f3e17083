"""What happened while the charts moved: deployments, versions, replicas' deaths, promises, limits.

All of it is in the audit trail already, so whoever may read the trail sees the marks, and nothing is kept twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from django.db.models import Q

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
    event_id: str


def kind_of(action: str) -> Kind | None:
    """The kind of mark an audited action is, if any. Pure."""
    return next((kind for prefix, kind in PREFIXES.items() if action.startswith(prefix)), None)


def marks(since: datetime, until: datetime) -> list[Mark]:
    """The newest `MAX_MARKS` of a span within the caller's scope, oldest first."""
    matches = Q()
    for prefix in PREFIXES:
        matches |= Q(action__startswith=prefix)
    found = AuditEvent.objects.filter(matches, at__gte=since, at__lt=until).order_by("-seq")[:MAX_MARKS]
    return [mark for event in reversed(found) if (mark := _mark(event))]


def _mark(event: AuditEvent) -> Mark | None:
    kind = kind_of(event.action)
    if kind is None:
        return None
    return Mark(event.at.timestamp(), kind, event.action, event.target_name, event.actor_name, event.event_id)
