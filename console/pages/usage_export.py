"""The ledger's days as CSV, streamed: page after page by key, so that memory is bounded whatever was asked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

from asgiref.sync import sync_to_async
from django.db import transaction
from django.db.models import Q
from django.http import StreamingHttpResponse

from console.pages.usage_query import UsageQuery
from console.requests import ConsoleRequest
from tenants.access import scope_of
from tenants.actors import Actor
from tenants.audit import Target, record
from tenants.spreadsheets import lines
from tenants.usage_columns import COUNTS, DIMENSIONS

PAGE_ROWS = 5_000
COLUMNS = ("day", "tenant_name", "key_name", *DIMENSIONS, *COUNTS)
Place = tuple[Any, int]
"""Day and id of the last row that was written."""


def exported(request: ConsoleRequest, asked: UsageQuery) -> StreamingHttpResponse:
    """The export is itself an event, recorded before the first row leaves."""
    with transaction.atomic():
        facts = {"first": asked.span.first, "last": asked.span.last, "filters": asked.wanted}
        target = Target("usage", "", "usage ledger")
        record(by=request.actor, action="usage.exported", target=target, after=facts, tenant=request.tenant)
    tenant_id = request.tenant.pk if request.tenant else None
    name = f"tidegate-usage-{asked.span.first}-{asked.span.last}-{datetime.now(UTC):%Y%m%d%H%M%S}.csv"
    return StreamingHttpResponse(
        _pages(request.actor, tenant_id, asked),
        content_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"},
    )


async def _pages(actor: Actor, tenant_id: str | None, asked: UsageQuery) -> AsyncIterator[bytes]:
    yield lines([COLUMNS]).encode()
    place: Place | None = None
    while True:
        text, place = await sync_to_async(_page)(actor, tenant_id, asked, place)
        if text:
            yield text.encode()
        if place is None:
            return


def _page(
    actor: Actor, tenant_id: str | None, asked: UsageQuery, after: Place | None
) -> tuple[str, Place | None]:
    """The next rows as text, and where they end; None at the end. The request's own scope has ended by now."""
    with scope_of(actor, tenant_id):
        rows = asked.of(asked.span).days().order_by("day", "id")
        if after is not None:
            day, last = after
            rows = rows.filter(Q(day__gt=day) | Q(day=day, id__gt=last))
        found = list(rows.values_list("id", *COLUMNS)[:PAGE_ROWS])
    text = lines(row[1:] for row in found) if found else ""
    return text, (found[-1][1], found[-1][0]) if len(found) == PAGE_ROWS else None
