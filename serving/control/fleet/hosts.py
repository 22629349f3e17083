"""Hosts appear with their agent's first heartbeat and are silent after three missed ones."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec
import structlog
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from serving.contract import HostReport
from serving.control import publish
from serving.control.fleet.models import HOST_SILENT_AFTER, Deployment, Host, Replica
from serving.control.fleet.states import GONE

SILENT_REASON = "host silent"
FAREWELL_AFTER = timedelta(seconds=120)
"""How long an unwanted replica may drain before we stop waiting for its agent's last word."""

log = structlog.get_logger(__name__)


def live_hosts(now: datetime | None = None) -> QuerySet[Host]:
    """Hosts whose agent was heard of in the last 15 s, by name."""
    return Host.objects.filter(last_seen_at__gt=(now or timezone.now()) - HOST_SILENT_AFTER)


def any_live_host(now: datetime | None = None) -> Host | None:
    """The live host with the fewest wanted replicas: where a validation disturbs least."""
    hosts = list(live_hosts(now).prefetch_related("replicas"))
    return min(hosts, key=lambda host: sum(r.is_wanted for r in host.replicas.all()), default=None)


@transaction.atomic
def record_heartbeat(report: HostReport, received_at: datetime) -> None:
    """Take over what the host says of itself; words of an earlier agent process are ignored."""
    host = Host.objects.select_for_update().filter(name=report.host).first()
    if host is None:
        host = Host(name=report.host, last_seen_at=received_at)
    if report.epoch < host.epoch:
        return
    host.epoch = report.epoch
    host.devices = msgspec.to_builtins(report.devices)
    host.features = list(report.features)
    host.replica_dir = report.replica_dir
    host.last_seen_at = max(host.last_seen_at, received_at)
    host.save()


def step(now: datetime) -> int:
    """What runs on silent hosts is no longer known: say so, and route around it. Returns how many changed."""
    return _mark_silent(now) + _bury_unwanted(now)


@transaction.atomic
def _mark_silent(now: datetime) -> int:
    lost = list(
        Replica.objects.select_for_update(of=("self",))
        .select_related("deployment__model", "host")
        .filter(host__last_seen_at__lte=now - HOST_SILENT_AFTER)
        .exclude(state__in=GONE)
        .order_by("pk")
    )
    for replica in lost:
        replica.state, replica.reason, replica.state_changed_at = "failed", SILENT_REASON, now
        replica.save(update_fields=["state", "reason", "state_changed_at"])
        log.warning("replica.host_silent", replica=replica.pk, host=replica.host.name)
    _publish({replica.deployment for replica in lost})
    return len(lost)


def _bury_unwanted(now: datetime) -> int:
    waiting = Replica.objects.filter(is_wanted=False, state_changed_at__lte=now - FAREWELL_AFTER)
    return waiting.exclude(state__in=GONE).update(
        state="stopped", reason="its agent said nothing more", state_changed_at=now
    )


def _publish(deployments: set[Deployment]) -> None:
    for deployment in sorted(deployments, key=lambda row: row.pk):
        publish.model(deployment.model)
