"""What time takes away: keys past their expiry, and rows nobody needs any more."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import transaction

from serving.control import publish, reports
from serving.control.alerts import store as alerts
from serving.control.fleet.models import Replica
from serving.control.fleet.states import GONE
from serving.control.pricing import ready
from serving.control.seam_tables import ConfigEntry
from serving.control.task_outbox import TaskOutbox
from serving.control.telemetry import retention as telemetry
from tenants.actors import Actor
from tenants.audit import record
from tenants.models import ApiKey
from tenants.retention import prune_usage
from tenants.scoping import all_tenants

USAGE_REPORTS_KEPT = timedelta(days=7)
"""A gateway cut off for longer than this could count its last report twice."""
OTHER_REPORTS_KEPT = timedelta(minutes=10)
TOMBSTONES_KEPT = timedelta(days=1)
TASKS_KEPT = timedelta(days=1)
GONE_REPLICAS_KEPT = timedelta(days=7)

ALERTS_KEPT = timedelta(days=90)
"""History of alerts, and what was sent of it."""

_TASKS = Actor.system("tasks")


def expire_keys(now: datetime) -> int:
    """Retract the entries of keys past their expiry, each with its audit event; returns how many.

    Gateways refuse an expired key by themselves, to the second; this keeps their tables small and the
    trail complete.
    """
    published = ConfigEntry.objects.filter(kind="key", deleted=False).values("key")
    with all_tenants("keys of every tenant expire"):
        expired = list(
            ApiKey.objects.select_related("tenant").filter(
                expires_at__lte=now, revoked_at__isnull=True, pk__in=published
            )
        )
    return sum(_expire(key) for key in expired)


@transaction.atomic
def _expire(key: ApiKey) -> bool:
    # The retraction is the claim: of two tasks at once only one finds an entry to delete.
    if publish.refresh("key", key.pk) is None:
        return False
    record(
        by=_TASKS,
        action="key.expired",
        target=key,
        before={"state": "active"},
        after={"state": "expired"},
        tenant=key.tenant,
    )
    return True


def prune(now: datetime) -> dict[str, int]:
    """Delete what has served its time; returns how many rows by kind."""
    dispatched = TaskOutbox.objects.filter(dispatched_at__lt=now - TASKS_KEPT)
    replicas = Replica.objects.filter(
        is_wanted=False, state__in=GONE, state_changed_at__lt=now - GONE_REPLICAS_KEPT
    )
    return {
        "reports": reports.prune(
            usage_before=now - USAGE_REPORTS_KEPT, others_before=now - OTHER_REPORTS_KEPT
        ),
        "tombstones": publish.prune_tombstones(now - TOMBSTONES_KEPT),
        "tasks": dispatched.delete()[0],
        "replicas": replicas.delete()[0],
        "ready_hours": ready.prune(now),
        **alerts.prune(now - ALERTS_KEPT),
        **prune_usage(now),
        **telemetry.prune(now),
    }
