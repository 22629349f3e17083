"""What the usage page was asked, out of its address: days, filters, and what sums are told apart by."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from urllib.parse import urlencode

from django.utils.dateparse import parse_date

from console.requests import ConsoleRequest
from tenants.access import require
from tenants.ledger import FILTERS, GROUPS, Asked, Span
from tenants.roles import Right
from tenants.rollups import day_of
from tenants.zones import UTC_NAME, zone

SPANS = ("1", "7", "30", "90", "month", "last-month")
DEFAULT_SPAN, DEFAULT_GROUP = "30", "day"
MAX_SPAN_DAYS = 1100


@dataclass(frozen=True, slots=True)
class UsageQuery:
    """`tenant_ids` of None means all of the scope."""

    span_name: str
    span: Span
    group: str
    today: date
    zone_name: str
    """Whose days: the chosen tenant's zone; empty where each tenant has its own."""
    tenant_ids: list[str] | None
    wanted: dict[str, str] = field(default_factory=dict)

    def of(self, span: Span) -> Asked:
        """The same question of a span."""
        return Asked(span, self.tenant_ids, self.wanted)

    def address(self, **changes: str) -> str:
        """The query string with some of it changed; an empty value leaves a part out."""
        parts = {"days": self.span_name, "by": self.group, **self.wanted, **changes}
        if self.span_name == "custom" and "days" not in changes:
            parts |= {"days": "", "since": str(self.span.first), "until": str(self.span.last)}
        return urlencode({name: value for name, value in parts.items() if value})


def query_of(request: ConsoleRequest) -> UsageQuery:
    """What the address asks and the page does not know is ignored, never an error."""
    tenant_ids = readable(request)
    zone_name = request.tenant.usage_zone if request.tenant else ""
    today = day_of(datetime.now(UTC), zone(zone_name or UTC_NAME))
    span_name, span = _span(request, today)
    group = request.GET.get("by", "")
    wanted = {name: request.GET.get(name, "").strip()[:100] for name in FILTERS}
    return UsageQuery(
        span_name=span_name,
        span=span,
        group=group if group in GROUPS else DEFAULT_GROUP,
        today=today,
        zone_name=zone_name,
        tenant_ids=tenant_ids,
        wanted={name: value for name, value in wanted.items() if value},
    )


def readable(request: ConsoleRequest) -> list[str] | None:
    """Tenants whose usage may be read; None for all of the scope."""
    if request.tenant is not None:
        require(request.actor, Right.VIEW_USAGE, request.tenant.pk)
        return [request.tenant.pk]
    if request.actor.sees_platform:
        return None
    return [i for i in request.actor.tenant_ids if request.actor.has(Right.VIEW_USAGE, i)]


def _span(request: ConsoleRequest, today: date) -> tuple[str, Span]:
    first, last = _day(request.GET.get("since", "")), _day(request.GET.get("until", ""))
    if first and last and first <= last:
        return "custom", Span(max(first, last - timedelta(days=MAX_SPAN_DAYS)), last)
    asked = request.GET.get("days", "")
    name = asked if asked in SPANS else DEFAULT_SPAN
    # Where each tenant has its own days, some have tomorrow already.
    end = today if request.tenant else today + timedelta(days=1)
    if name == "month":
        return name, Span(today.replace(day=1), end)
    if name == "last-month":
        last_day = today.replace(day=1) - timedelta(days=1)
        return name, Span(last_day.replace(day=1), last_day)
    return name, Span(today - timedelta(days=int(name) - 1), end)


def _day(text: str) -> date | None:
    try:
        found = parse_date(text[:10])
    except ValueError:
        return None
    return found if found and 2000 <= found.year < 2200 else None
