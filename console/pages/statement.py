"""A tenant's statement of one month: what it used, of what, through which keys, at which prices; made to be printed."""

from __future__ import annotations

import calendar
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from django.http import HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _

from console.pages.answers import page, show
from console.pages.bars import bars_of
from console.requests import ConsoleRequest
from serving.control.catalog.models import Version
from serving.control.pricing.current import binding_at
from serving.control.pricing.models import Price
from tenants.access import access_tenant_by_slug
from tenants.ledger import Span, Sums, sums_by, total_of, usage_in
from tenants.models import Tenant
from tenants.roles import Right
from tenants.rollups import day_of
from tenants.scoping import tenant_scope
from tenants.zones import zone

MONTHS_BACK = 24


@page("tenants")
def statement(request: ConsoleRequest, slug: str) -> HttpResponse:
    tenant = access_tenant_by_slug(request.actor, slug, Right.VIEW_USAGE)
    today = day_of(datetime.now(UTC), zone(tenant.usage_zone))
    months = _months(today)
    first = _month(request.GET.get("month", ""), months)
    with tenant_scope(tenant.pk):
        sums = _sums(first, tenant)
    return show(
        request,
        "pages/statement.html",
        tenant=tenant,
        month=first,
        last_day=_last(first),
        is_running=first == months[0],
        months=months,
        written_at=datetime.now(UTC),
        crumbs=[
            (_("Tenants"), reverse("tenants")),
            (tenant.name, reverse("tenant", args=[tenant.slug])),
        ],
        **sums,
    )


def _sums(first: date, tenant: Tenant) -> dict[str, Any]:
    rows = usage_in(Span(first, _last(first)), [tenant.pk])
    lines = sums_by(rows, ("model", "version", "class"))
    _add_numbers(lines)
    days = {row["day"]: row["cost_micro"] for row in sums_by(rows, ("day",))}
    month = [first + timedelta(days=number) for number in range((_last(first) - first).days + 1)]
    return {
        "lines": lines,
        "keys": sums_by(rows, ("key",)),
        "prices": _prices(first, lines),
        "total": total_of(lines),
        "bars": bars_of([(day, days.get(day, 0)) for day in month]),
    }


def _prices(first: date, lines: list[Sums]) -> list[Price]:
    """Prices of the month that could bind what was used, in the order in which they began."""
    models = {line["model"] for line in lines}
    start, end = (datetime.combine(day, time.min, UTC) for day in (first, _last(first) + timedelta(days=1)))
    found = list(Price.objects.filter(model__in=["", *models], effective_from__lt=end))
    bound = {price.pk for price in binding_at(found, start).values()}
    kept = [price for price in found if price.pk in bound or price.effective_from >= start]
    return sorted((price for price in kept if not price.is_end), key=lambda price: price.effective_from)


def _add_numbers(lines: list[Sums]) -> None:
    numbers = dict(
        Version.objects.filter(pk__in={line["version_id"] for line in lines}).values_list("pk", "number")
    )
    for line in lines:
        line["version_number"] = numbers.get(line["version_id"])


def _months(today: date) -> list[date]:
    """The running month first."""
    number = today.year * 12 + today.month - 1
    return [date((number - back) // 12, (number - back) % 12 + 1, 1) for back in range(MONTHS_BACK)]


def _month(text: str, months: list[date]) -> date:
    """The month asked for; the running one for everything that is none of them."""
    return next((month for month in months if f"{month:%Y-%m}" == text), months[0])


def _last(first: date) -> date:
    return first.replace(day=calendar.monthrange(first.year, first.month)[1])
