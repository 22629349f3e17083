"""Usage and cost: sums of the ledger by what the reader wants, day by day, with what the month will come to."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

from django.http import HttpResponse
from django.utils.translation import gettext_lazy

from console.pages.answers import page, show
from console.pages.bars import Bars, bars_of
from console.pages.usage_export import exported
from console.pages.usage_query import SPANS, UsageQuery, query_of
from console.requests import ConsoleRequest
from serving.control.catalog.access import visible_models
from serving.control.catalog.models import Version
from tenants.forecast import Forecast, first_needed, month_forecast
from tenants.ledger import GROUPS, Span, Sums, cost_by_day, costs_of, sums_by, total_of

MAX_ROWS = 500
"""Of days: a quarter of some models."""
TOP_ROWS = 200
"""Of everything else, the dearest first: beyond them the CSV is read, not a page."""
GROUP_WORDS = {
    "day": gettext_lazy("Day and model"),
    "tenant": gettext_lazy("Tenant"),
    "key": gettext_lazy("API key"),
    "model": gettext_lazy("Model"),
    "version": gettext_lazy("Version"),
    "class": gettext_lazy("Class"),
}
SPAN_WORDS = {
    "1": gettext_lazy("Today"),
    "7": gettext_lazy("Last 7 days"),
    "30": gettext_lazy("Last 30 days"),
    "90": gettext_lazy("Last 90 days"),
    "month": gettext_lazy("This month"),
    "last-month": gettext_lazy("Last month"),
}
_WITH = {"day": ("day", "model"), "key": ("tenant", "key"), "version": ("model", "version")}
"""Groups that say little alone."""


@page("usage")
def index(request: ConsoleRequest) -> HttpResponse:
    asked = query_of(request)
    groups = _WITH.get(asked.group, (asked.group,))
    days = sums_by(asked.of(asked.span), ("day",))
    most = MAX_ROWS if asked.group == "day" else TOP_ROWS
    found = sums_by(asked.of(asked.span), groups, most + 1)
    listed = found[:most]
    _add_shares(listed)
    _add_versions(listed)
    return show(
        request,
        "pages/usage.html",
        asked=asked,
        columns=[column for column in GROUPS if column in groups],
        rows=listed,
        is_cut=len(found) > most,
        total=total_of(days),
        bars=_bars(days, asked),
        forecast=_forecast(asked, days),
        models=_models(request, asked, listed),
        spans=[(name, SPAN_WORDS[name]) for name in SPANS],
        groups=list(GROUP_WORDS.items()),
        chips=_chips(asked, listed),
        export=asked.address(),
    )


@page("usage")
def export(request: ConsoleRequest) -> Any:
    """Every row of the days asked for, at the finest the ledger has for days, as CSV."""
    return exported(request, query_of(request))


def _add_shares(rows: list[Sums]) -> None:
    top = max((row["cost_micro"] for row in rows), default=0)
    for row in rows:
        row["cost_share"] = row["cost_micro"] / top if top else 0


def _add_versions(rows: list[Sums]) -> None:
    """The number people know a version by; versions stay in the catalog when they are archived."""
    ids = {row["version_id"] for row in rows if "version_id" in row}
    numbers = dict(Version.objects.filter(pk__in=ids).values_list("pk", "number")) if ids else {}
    for row in rows:
        if "version_id" in row:
            row["version_number"] = numbers.get(row["version_id"])


def _bars(days: list[Sums], asked: UsageQuery) -> Bars | None:
    cost = costs_of(days)
    last = max([asked.span.last if asked.tenant_ids else min(asked.span.last, asked.today), *cost])
    count = (last - asked.span.first).days + 1
    return bars_of([(day, cost.get(day, 0)) for day in _dates(asked.span.first, count)])


def _dates(first: date, count: int) -> list[date]:
    return [first + timedelta(days=number) for number in range(count)]


def _forecast(asked: UsageQuery, days: list[Sums]) -> Forecast | None:
    """Of the running month, under the same filters, whatever days are shown."""
    needed = Span(first_needed(asked.today), asked.today)
    if asked.span.first <= needed.first and asked.span.last >= needed.last:
        cost = costs_of(days)
    else:
        cost = cost_by_day(asked.of(needed))
    return month_forecast(cost, asked.today)


def _models(request: ConsoleRequest, asked: UsageQuery, rows: list[Sums]) -> list[str]:
    """Those that may be used, and those that were."""
    names = set(
        visible_models(request.actor, request.tenant.pk if request.tenant else None).values_list(
            "name", flat=True
        )
    )
    used = {row["model"] for row in rows if "model" in row}
    return sorted(names | used | {asked.wanted[name] for name in ("model",) if name in asked.wanted})


def _chips(asked: UsageQuery, rows: list[Sums]) -> list[tuple[Any, str, str]]:
    """What the rows are narrowed to, besides the model: its word, its value as people know it, and the way out."""
    chips = []
    for name, value in asked.wanted.items():
        if name != "model":
            column, named = GROUPS[name]
            known = next((row.get(named) for row in rows if named and row.get(column) == value), None)
            chips.append((GROUP_WORDS[name], known or value, asked.address(**{name: ""})))
    return chips
