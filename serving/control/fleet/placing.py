"""Carries out what `placement` decides: in the controller's step, and at once inside a deploy."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import cast

import structlog
from django.db import connection, transaction
from django.db.models import Q

from serving.contract import ReplicaState
from serving.control import publish
from serving.control.fleet import placement
from serving.control.fleet.models import Deployment, Host, Replica
from serving.control.fleet.states import GONE

_LOCK = 0x71DE_0001

log = structlog.get_logger(__name__)


@transaction.atomic
def step(now: datetime, *, changed: Deployment | None = None) -> placement.Decision:
    """Decide and carry out. `changed` is published in any case: its own fields are new.

    All rows are written before anything is published: the clock's lock comes last (see `publish`).
    """
    lock()
    deployments = {row.pk: row for row in _active()}
    hosts = {row.pk: row for row in Host.objects.all()}
    decision = placement.decide(
        [_wish(row) for row in deployments.values()],
        [_site(row, now) for row in hosts.values()],
        _placed(),
    )
    touched = _remove(decision.remove, now)
    for create in decision.create:
        _create(create, deployments[create.deployment_id], hosts[create.host_id])
        touched.add(create.deployment_id)
    _note_reasons(deployments.values(), decision.blocked)
    if changed is not None:
        touched.add(changed.pk)
    for row in Deployment.objects.select_related("model").filter(pk__in=touched).order_by("pk"):
        publish.deployment(row)
    return decision


def lock() -> None:
    """Placements are decided one at a time. Whoever will place takes this before any row's lock.

    The order is: placement, model, deployment, replicas, clock; keeping it is what avoids deadlocks.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])


def _active() -> Iterable[Deployment]:
    return Deployment.objects.select_related("version").filter(state="active")


def _wish(row: Deployment) -> placement.Wish:
    return placement.Wish(
        deployment_id=row.pk,
        version_id=row.version_id,
        count=row.replicas_wanted,
        device=row.device,
        memory_bytes=row.version.memory_bytes or 0,
    )


def _site(row: Host, now: datetime) -> placement.Site:
    return placement.Site(row.pk, row.name, row.is_live(now), row.device_infos())


def _placed() -> list[placement.Placed]:
    """Wanted replicas, and unwanted ones that still hold memory."""
    rows = Replica.objects.select_related("version").filter(Q(is_wanted=True) | ~Q(state__in=GONE))
    return [
        placement.Placed(
            replica_id=row.pk,
            deployment_id=row.deployment_id,
            version_id=row.version_id,
            host_id=row.host_id,
            slot=row.slot,
            device=row.device,
            state=cast(ReplicaState, row.state),
            is_wanted=row.is_wanted,
            memory_bytes=row.version.memory_bytes or 0,
        )
        for row in rows.order_by("pk")
    ]


def _remove(removals: Iterable[placement.Remove], now: datetime) -> set[str]:
    reasons = {removal.replica_id: removal.reason for removal in removals}
    rows = list(Replica.objects.select_for_update().filter(pk__in=reasons).order_by("pk"))
    for row in rows:
        row.is_wanted = False
        row.reason = reasons[row.pk]
        if row.state not in GONE:
            row.state, row.state_changed_at = "draining", now
        row.save(update_fields=["is_wanted", "reason", "state", "state_changed_at"])
        log.info("replica.removed", replica=row.pk, reason=row.reason)
    return {row.deployment_id for row in rows}


def _create(create: placement.Create, deployment: Deployment, host: Host) -> None:
    replica = Replica(
        deployment=deployment,
        version_id=create.version_id,
        host=host,
        slot=create.slot,
        device=create.device,
        threads=deployment.threads,
    )
    replica.address = f"unix:{host.replica_dir}/{replica.pk}.sock"
    replica.save(force_insert=True)
    log.info("replica.placed", replica=replica.pk, host=host.name, device=create.device)


def _note_reasons(deployments: Iterable[Deployment], blocked: dict[str, str]) -> None:
    for row in deployments:
        reason = blocked.get(row.pk, "")
        if row.state_reason != reason:
            Deployment.objects.filter(pk=row.pk).update(state_reason=reason)
            row.state_reason = reason
