"""Takes in what the data plane reports: each report once, poison set aside, nothing held up behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, cast

import msgspec
import structlog
from django.db import OperationalError, transaction
from django.utils import timezone

from serving.contract import (
    EventReport,
    HostReport,
    KeysReport,
    ReplicaReport,
    ReportBody,
    TuningReport,
    UsageReport,
    ValidationReport,
    decode_report,
)
from serving.control.catalog.validation import record_validation
from serving.control.fleet import events, hosts, replicas
from serving.control.seam_tables import ReportRow
from serving.control.tuning.actions import record_tuning
from tenants.key_uses import record_misuse, record_seen
from tenants.usage import record_usage

log = structlog.get_logger(__name__)

Apply = Callable[[ReportRow, Any], object]


def _apply_usage(row: ReportRow, body: UsageReport) -> None:
    record_usage(row.process, body.rows)


def _apply_replica(row: ReportRow, body: ReplicaReport) -> None:
    replicas.record(body, row.received_at)


def _apply_host(row: ReportRow, body: HostReport) -> None:
    hosts.record_heartbeat(body, row.received_at)


def _apply_event(row: ReportRow, body: EventReport) -> None:
    events.record_event(body)


def _apply_validation(row: ReportRow, body: ValidationReport) -> None:
    record_validation(body)


def _apply_tuning(row: ReportRow, body: TuningReport) -> None:
    record_tuning(body)


def _apply_keys(row: ReportRow, body: KeysReport) -> None:
    record_seen(body.seen)
    record_misuse(body.misused)


APPLY: Mapping[type[ReportBody], Apply] = {
    UsageReport: _apply_usage,
    ReplicaReport: _apply_replica,
    HostReport: _apply_host,
    ValidationReport: _apply_validation,
    EventReport: _apply_event,
    TuningReport: _apply_tuning,
    KeysReport: _apply_keys,
}


def ingest(limit: int = 1000) -> int:
    """Apply waiting reports, oldest first, one transaction each; returns how many were dealt with.

    Several ingesters share the work: each takes rows that nobody else holds.
    """
    for done in range(limit):
        if not _ingest_next():
            return done
    return limit


def _ingest_next() -> bool:
    with transaction.atomic():
        row = (
            ReportRow.objects.select_for_update(skip_locked=True)
            .filter(applied_at__isnull=True, error="")
            .order_by("id")
            .first()
        )
        if row is None:
            return False
        error = _apply(row)
        # One write marks the report in the transaction that applied it: it counts once, or not yet.
        ReportRow.objects.filter(pk=row.pk).update(
            applied_at=None if error else timezone.now(), error=error[:2000]
        )
    return True


def _apply(row: ReportRow) -> str:
    """Apply in a savepoint; the reason when that failed, which sets the report aside."""
    try:
        with transaction.atomic():
            body = decode_report(msgspec.json.encode(row.body))
            APPLY[type(body)](row, cast(Any, body))
    except OperationalError:
        raise  # the database's trouble (gone, deadlock), not the report's: it is tried again
    except Exception as error:  # a loop's top: one poison report must not block the rest
        log.exception("report.set_aside", process=row.process, sequence=row.sequence, kind=row.kind)
        return f"{type(error).__name__}: {error}"
    return ""


def prune(*, usage_before: datetime, others_before: datetime) -> int:
    """Forget applied reports. Usage is remembered longest: a resend after that would count twice."""
    applied = ReportRow.objects.filter(applied_at__isnull=False)
    usage, _ = applied.filter(kind="usage", applied_at__lt=usage_before).delete()
    others, _ = applied.exclude(kind="usage").filter(applied_at__lt=others_before).delete()
    return usage + others
