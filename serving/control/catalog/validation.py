"""Validation: a worker on some host loads, warms and measures a version; its report makes it ready or failed."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec
from django.conf import settings
from django.db import transaction
from django.utils import timezone

from serving.contract import ValidationReport
from serving.control import publish
from serving.control.catalog.models import Engine, Version
from serving.control.catalog.transitions import move
from serving.control.fleet.hosts import any_live_host
from tenants.access import require
from tenants.actors import Actor
from tenants.audit import record
from tenants.errors import Conflict
from tenants.roles import Right

REPORT_WITHIN = timedelta(minutes=15)
"""A validation whose report has not come by then has failed."""
_CONTROLLER = Actor.system("controller")


@transaction.atomic
def request_validation(*, by: Actor, version: Version) -> Version:
    """Publish the wish to validate; returns the version, `validating`."""
    require(by, Right.MANAGE_MODELS)
    row = Version.objects.select_related("model", "artifact").get(pk=version.pk)
    if row.engine == Engine.PYTHON and not row.is_trusted:
        raise Conflict("This version is Python code. An operator has to trust it before it may run.")
    host = any_live_host()
    name = host.name if host is not None else settings.HOST_NAME
    attempt = row.validation_attempt + 1
    before = row.state
    move(row, "validating", validation_attempt=attempt, validation_host=name)
    after = {"state": row.state, "host": name, "attempt": attempt}
    record(by=by, action="version.validation_requested", target=row, before={"state": before}, after=after)
    _publish(row)
    return row


@transaction.atomic
def record_validation(report: ValidationReport) -> bool:
    """Apply a worker's report; False when it is not of the running attempt, or comes a second time."""
    rows = Version.objects.select_related("model").select_for_update(of=("self",))
    row = rows.filter(pk=report.version_id, state="validating", validation_attempt=report.attempt).first()
    if row is None:
        return False
    if report.ok:
        move(row, "ready", **_measured(report))
        record(by=_CONTROLLER, action="version.validated", target=row, after={"state": "ready"})
    else:
        _fail(row, report.reason or "The worker gave no reason.")
    _publish(row)
    return True


def step(now: datetime) -> int:
    """Fail validations whose report is overdue; how many."""
    overdue = Version.objects.filter(state="validating", state_changed_at__lt=now - REPORT_WITHIN)
    return sum(_expire(version_id, now) for version_id in overdue.values_list("pk", flat=True))


@transaction.atomic
def _expire(version_id: str, now: datetime) -> bool:
    rows = Version.objects.select_related("model").select_for_update(of=("self",))
    row = rows.filter(pk=version_id, state="validating", state_changed_at__lt=now - REPORT_WITHIN).first()
    if row is None:
        return False
    minutes = int(REPORT_WITHIN.total_seconds() // 60)
    _fail(row, f"No report within {minutes} minutes from host {row.validation_host}. Is its agent running?")
    _publish(row)
    return True


def _fail(row: Version, reason: str) -> None:
    move(row, "failed", reason)
    after = {"state": "failed"}
    record(by=_CONTROLLER, action="version.validation_failed", target=row, after=after, reason=reason)


def _measured(report: ValidationReport) -> dict[str, Any]:
    return {
        "inputs": msgspec.to_builtins(report.inputs),
        "outputs": msgspec.to_builtins(report.outputs),
        "cost": msgspec.to_builtins(report.cost),
        "points": msgspec.to_builtins(report.points),
        "memory_bytes": report.memory_bytes,
        "load_s": report.load_s,
        "warm_up_s": report.warm_up_s,
        "notes": list(report.notes),
        "validated_at": timezone.now(),
    }


def _publish(row: Version) -> None:
    """The version first: whoever reads the wish to validate must find what to validate."""
    publish.version(row)
    publish.validation(row)
