"""A tenant's statement of one month, as the page and the API show it."""

from __future__ import annotations

import calendar
from datetime import UTC, date, datetime, time, timedelta
from typing import NamedTuple

from serving.control.catalog.models import Version
from serving.control.pricing.current import binding_at
from serving.control.pricing.models import Price
from tenants.ledger import Asked, Span, Sums, cost_by_day, sums_by, total_of
from tenants.models import Tenant
from tenants.scoping import tenant_scope

MONTHS_BACK = 24


class Statement(NamedTuple):
    """What a month's days (the tenant's own) hold."""

    lines: list[Sums]
    """By model, version and class, with `version_number`."""
    keys: list[Sums]
    prices: list[Price]
    total: Sums
    cost_of: dict[date, int]
    """Micro-units by day with usage."""


def statement_of(tenant: Tenant, first: date) -> Statement:
    """`first` is the first day of the month."""
    with tenant_scope(tenant.pk):
        asked = Asked(Span(first, last_day(first)), [tenant.pk])
        lines = sums_by(asked, ("model", "version", "class"))
        _add_numbers(lines)
        costs = cost_by_day(asked)
        return Statement(lines, sums_by(asked, ("key",)), _prices(first, lines), total_of(lines), costs)


def months_until(today: date) -> list[date]:
    """First days of the months there are statements of, the running one first."""
    number = today.year * 12 + today.month - 1
    return [date((number - back) // 12, (number - back) % 12 + 1, 1) for back in range(MONTHS_BACK)]


def last_day(first: date) -> date:
    return first.replace(day=calendar.monthrange(first.year, first.month)[1])


def _prices(first: date, lines: list[Sums]) -> list[Price]:
    """Prices of the month that could bind what was used, in the order in which they began."""
    models = {line["model"] for line in lines}
    start, end = (
        datetime.combine(day, time.min, UTC) for day in (first, last_day(first) + timedelta(days=1))
    )
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
