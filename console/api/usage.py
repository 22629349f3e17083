"""Usage and cost out of the ledger, by what the asker wants them apart. Money in micro-units."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

from django.utils import timezone
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.fields import Document, Query
from console.api.readable import readable
from console.api.schema import shown
from console.api.views import ApiView
from tenants.access import require
from tenants.actors import Actor
from tenants.errors import Invalid
from tenants.ledger import FILTERS, GROUPS, Asked, Span, sums_by, total, total_of
from tenants.roles import Right

MAX_DAYS = 400
MAX_ROWS = 1000
DEFAULT_DAYS = 30
_SEPARATOR = ","


class CountsDocument(Document):
    requests = serializers.IntegerField()
    failed = serializers.IntegerField()
    cancelled = serializers.IntegerField()
    rows = serializers.IntegerField()
    tokens = serializers.IntegerField()
    device_us = serializers.IntegerField(help_text="Device time, microseconds.")
    cost_micro = serializers.IntegerField()


class UsageRowDocument(CountsDocument):
    """Holds the columns that were asked for in `group_by`."""

    day = serializers.DateField(required=False)
    tenant_id = serializers.CharField(required=False)
    tenant_name = serializers.CharField(required=False)
    key_id = serializers.CharField(required=False)
    key_name = serializers.CharField(required=False)
    model = serializers.CharField(required=False)
    version_id = serializers.CharField(required=False)
    sla_class = serializers.CharField(required=False)


class UsageDocument(Document):
    since = serializers.DateField()
    until = serializers.DateField()
    data = UsageRowDocument(many=True)  # type: ignore[assignment]
    total = CountsDocument()
    is_cut = serializers.BooleanField(help_text=f"There are more than {MAX_ROWS} rows; ask for less.")


class UsageQuery(Query):
    since = serializers.DateField(required=False, help_text="First day; 30 days back by default.")
    until = serializers.DateField(required=False, help_text="Last day, included; today by default.")
    group_by = serializers.CharField(
        default="day",
        max_length=100,
        help_text=f"Of {', '.join(GROUPS)}, several with commas.",
    )
    tenant = serializers.CharField(required=False, max_length=40)
    key = serializers.CharField(required=False, max_length=40)
    model = serializers.CharField(required=False, max_length=100)
    version = serializers.CharField(required=False, max_length=40)

    def get_fields(self) -> dict[str, Any]:
        """`class` is a word of the language, and so no name of an attribute."""
        named = {"class": serializers.CharField(required=False, max_length=16)}
        return {**super().get_fields(), **named}


class Usage(ApiView):
    """`/usage`"""

    @shown("get_usage", UsageDocument, UsageQuery)
    def get(self, request: Request) -> Response:
        """Sums of the days asked for, each tenant's days being its own time zone's."""
        groups, span = self._groups(), self._span()
        wanted = {name: str(self.asked[name]) for name in FILTERS if name in self.asked}
        asked = Asked(span, readable_usage(self.actor), wanted)
        found = sums_by(asked, groups, MAX_ROWS + 1)
        is_cut = len(found) > MAX_ROWS
        return Response(
            {
                "since": span.first.isoformat(),
                "until": span.last.isoformat(),
                "data": found[:MAX_ROWS],
                "total": total(asked) if is_cut else total_of(found),
                "is_cut": is_cut,
            }
        )

    def _groups(self) -> list[str]:
        names = [name.strip() for name in self.asked["group_by"].split(_SEPARATOR)]
        if any(name not in GROUPS for name in names) or len(set(names)) < len(names):
            raise Invalid({"group_by": f"Of {', '.join(GROUPS)}, each once, with commas between."})
        return names

    def _span(self) -> Span:
        # A tenant east of here may be a day ahead already.
        last: date = self.asked.get("until") or timezone.now().date() + timedelta(days=1)
        first: date = self.asked.get("since") or _earlier(last, DEFAULT_DAYS)
        if not first <= last or (last - first).days > MAX_DAYS:
            raise Invalid({"since": f"A day before `until`, by at most {MAX_DAYS} days."})
        return Span(first, last)


def readable_usage(actor: Actor) -> list[str] | None:
    """Tenants whose usage may be read; None for all. Refused for who may read nobody's."""
    ids = readable(actor, Right.VIEW_USAGE)
    if ids == []:
        require(actor, Right.VIEW_USAGE)
    return ids


def _earlier(day: date, days: int) -> date:
    return max(day, date.min + timedelta(days=days)) - timedelta(days=days)
