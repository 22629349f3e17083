"""A tenant's statement of one month: what it used, of what, through which keys, at which prices; made to be printed."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

from django.http import HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _

from console.pages.answers import page, show
from console.pages.bars import Bars, bars_of
from console.requests import ConsoleRequest
from console.statements import last_day, months_until, statement_of
from tenants.access import access_tenant_by_slug
from tenants.roles import Right
from tenants.rollups import day_of
from tenants.zones import zone


@page("tenants")
def statement(request: ConsoleRequest, slug: str) -> HttpResponse:
    tenant = access_tenant_by_slug(request.actor, slug, Right.VIEW_USAGE)
    today = day_of(datetime.now(UTC), zone(tenant.usage_zone))
    months = months_until(today)
    first = _month(request.GET.get("month", ""), months)
    found = statement_of(tenant, first)
    return show(
        request,
        "pages/statement.html",
        tenant=tenant,
        month=first,
        last_day=last_day(first),
        is_running=first == months[0],
        months=months,
        written_at=datetime.now(UTC),
        crumbs=[
            (_("Tenants"), reverse("tenants")),
            (tenant.name, reverse("tenant", args=[tenant.slug])),
        ],
        lines=found.lines,
        keys=found.keys,
        prices=found.prices,
        total=found.total,
        bars=_bars(first, found.cost_of),
    )


def _month(text: str, months: list[date]) -> date:
    """The month asked for; the running one for everything that is none of them."""
    return next((month for month in months if f"{month:%Y-%m}" == text), months[0])


def _bars(first: date, cost_of: dict[date, int]) -> Bars | None:
    days = [first + timedelta(days=number) for number in range((last_day(first) - first).days + 1)]
    return bars_of([(day, cost_of.get(day, 0)) for day in days])
