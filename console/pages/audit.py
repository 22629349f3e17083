"""The audit trail: who did what to which, with a readable diff; exported in two clicks."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from datetime import datetime, time, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Q, QuerySet
from django.http import HttpResponse
from django.utils import timezone
from django.utils.dateparse import parse_date

from console.pages.answers import page, show
from console.pages.listing import listing
from console.requests import ConsoleRequest
from tenants.access import require
from tenants.audit import Target, record
from tenants.models import AuditEvent
from tenants.roles import Right

EXPORT_ROWS = 100_000
COLUMNS = (
    "seq", "event_id", "at", "tenant_id", "tenant_name", "actor_type", "actor_id", "actor_name", "action",
    "target_type", "target_id", "target_name", "outcome", "reason", "before", "after", "request_id", "trace_id",
    "ip", "user_agent",
)  # fmt: skip
FILTERS = ("q", "action", "outcome", "since", "until")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


@page("audit")
def index(request: ConsoleRequest) -> HttpResponse:
    rows = _filtered(request, Right.VIEW_AUDIT)
    found = listing(
        request,
        rows,
        sorts={"time": "seq", "actor": "actor_name", "action": "action"},
        default="-time",
        filters=dict.fromkeys(FILTERS, ""),
        page_rows=50,
    )
    for event in found.page:
        event.changes = changes(event.before, event.after)  # type: ignore[attr-defined]
    kinds = sorted(
        set(_readable(request, Right.VIEW_AUDIT).order_by().values_list("action", flat=True).distinct())
    )
    query = request.GET.copy()
    query.pop("page", None)
    return show(
        request,
        "pages/audit.html",
        listing=found,
        kinds=kinds,
        query=query.urlencode(),
        may_export=_may(request, Right.EXPORT_AUDIT),
    )


@page("audit")
def export(request: ConsoleRequest) -> HttpResponse:
    """Every event the filters show, oldest first, as CSV for people or JSON lines for machines."""
    is_csv = request.GET.get("format") == "csv"
    # The export is itself an event. Bounded, it is written at once: a stream would outlive the scope.
    with transaction.atomic():
        rows = list(_filtered(request, Right.EXPORT_AUDIT).order_by("seq").values(*COLUMNS)[:EXPORT_ROWS])
        facts = {
            "rows": len(rows),
            "format": "csv" if is_csv else "jsonl",
            "filters": {name: value for name, value in _asked(request).items() if value},
        }
        record(
            by=request.actor,
            action="audit.exported",
            target=Target("audit", "", "audit trail"),
            after=facts,
            tenant=request.tenant,
        )
    name = f"tidegate-audit-{timezone.now():%Y%m%d-%H%M%S}.{'csv' if is_csv else 'jsonl'}"
    lines = _csv(rows) if is_csv else _jsonl(rows)
    kind = "text/csv; charset=utf-8" if is_csv else "application/jsonl"
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
    return HttpResponse("".join(lines), content_type=kind, headers=headers)


def changes(before: dict[str, Any] | None, after: dict[str, Any] | None) -> list[tuple[str, Any, Any]]:
    """Field, old, new; in the order of the names. None stands for "was not there"."""
    old, new = before or {}, after or {}
    names = sorted(old.keys() | new.keys())
    return [
        (name, _plain(old.get(name)), _plain(new.get(name)))
        for name in names
        if old.get(name) != new.get(name)
    ]


def _readable(request: ConsoleRequest, right: Right) -> QuerySet[AuditEvent]:
    """Events of the chosen tenant, or of all in which the person holds the right; operators and support see every one."""
    actor = request.actor
    if request.tenant is not None:
        require(actor, right, request.tenant.pk)
        return AuditEvent.objects.filter(tenant_id=request.tenant.pk)
    if actor.has(right):
        return AuditEvent.objects.all()
    allowed = [tenant_id for tenant_id in actor.tenant_ids if actor.has(right, tenant_id)]
    if not allowed:
        require(actor, right)
    return AuditEvent.objects.filter(tenant_id__in=allowed)


def _may(request: ConsoleRequest, right: Right) -> bool:
    if request.tenant is not None:
        return request.actor.has(right, request.tenant.pk)
    return request.actor.has(right) or any(request.actor.has(right, i) for i in request.actor.tenant_ids)


def _filtered(request: ConsoleRequest, right: Right) -> QuerySet[AuditEvent]:
    rows = _readable(request, right)
    asked = _asked(request)
    if asked["q"]:
        word = asked["q"]
        rows = rows.filter(
            Q(actor_name__icontains=word)
            | Q(target_name__icontains=word)
            | Q(target_id=word)
            | Q(request_id=word)
            | Q(tenant_name__icontains=word)
        )
    for name in ("action", "outcome"):
        if asked[name]:
            rows = rows.filter(**{name: asked[name]})
    since, end = _midnight(asked["since"]), _midnight(asked["until"], timedelta(days=1))
    if since:
        rows = rows.filter(at__gte=since)
    if end:
        rows = rows.filter(at__lt=end)
    return rows


def _asked(request: ConsoleRequest) -> dict[str, str]:
    return {name: request.GET.get(name, "").strip()[:100] for name in FILTERS}


def _midnight(text: str, later: timedelta = timedelta()) -> datetime | None:
    """None for what is no day, also for days beyond the calendar's end."""
    try:
        day = parse_date(text)
        return timezone.make_aware(datetime.combine(day + later, time.min)) if day else None
    except (ValueError, OverflowError):
        return None


def _csv(rows: list[dict[str, Any]]) -> Iterator[str]:
    writer = csv.writer(_Echo())
    yield writer.writerow(COLUMNS)
    for row in rows:
        yield writer.writerow([_cell(row[name]) for name in COLUMNS])


def _jsonl(rows: list[dict[str, Any]]) -> Iterator[str]:
    for row in rows:
        yield json.dumps(row, default=_plain, ensure_ascii=False) + "\n"


def _cell(value: Any) -> str:
    """A spreadsheet must not take a name for a formula."""
    text = "" if value is None else str(_plain(value))
    return f"'{text}" if text.startswith(_FORMULA) else text


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, sort_keys=True)
    return value


class _Echo:
    """A file that hands back what is written, for `csv.writer`."""

    def write(self, text: str) -> str:
        return text
