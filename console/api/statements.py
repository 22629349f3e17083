"""What a month cost and will: a tenant's statement, and the forecast of the running month."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

from django.utils import timezone
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.fields import Document, Query
from console.api.prices import PriceDocument
from console.api.schema import shown
from console.api.usage import CountsDocument, readable_usage
from console.api.views import ApiView
from console.statements import MONTHS_BACK, last_day, months_until, statement_of
from tenants.access import access_tenant
from tenants.errors import Invalid
from tenants.forecast import Forecast, first_needed, month_forecast, so_far
from tenants.ledger import Asked, Span, cost_by_day
from tenants.models import Tenant
from tenants.roles import Right
from tenants.rollups import day_of
from tenants.zones import zone


class LineDocument(CountsDocument):
    model = serializers.CharField()
    version_id = serializers.CharField()
    version_number = serializers.IntegerField(allow_null=True)
    sla_class = serializers.CharField()


class KeyLineDocument(CountsDocument):
    key_id = serializers.CharField()
    key_name = serializers.CharField()


class StatementDocument(Document):
    tenant_id = serializers.CharField()
    since = serializers.DateField()
    until = serializers.DateField()
    is_running = serializers.BooleanField(help_text="The month is not over: sums still grow.")
    lines = LineDocument(many=True)
    keys = KeyLineDocument(many=True)
    prices = PriceDocument(many=True, help_text="Prices that could bind what was used.")
    total = CountsDocument()


class StatementQuery(Query):
    month = serializers.RegexField(
        r"^[0-9]{4}-(0[1-9]|1[0-2])$",
        required=False,
        help_text=f"Such as 2026-03, up to {MONTHS_BACK} months back; the running one by default.",
    )


class ForecastDocument(Document):
    month = serializers.CharField(help_text="The running one, such as 2026-03.")
    cost_so_far_micro = serializers.IntegerField()
    cost_per_day_micro = serializers.IntegerField(
        allow_null=True, help_text="Mean of the last complete days."
    )
    days = serializers.IntegerField(help_text="How many days the mean is of; 0 before the first one.")
    cost_at_month_end_micro = serializers.IntegerField(allow_null=True)


class ForecastQuery(Query):
    tenant = serializers.CharField(required=False, max_length=40)
    model = serializers.CharField(required=False, max_length=100)


class TenantStatement(ApiView):
    """`/tenants/{id}/statement`"""

    @shown("get_statement", StatementDocument, StatementQuery)
    def get(self, request: Request, tenant_id: str) -> Response:
        """What a tenant used in a month of its own time zone, of what, by which keys, at which prices."""
        tenant = access_tenant(self.actor, tenant_id, Right.VIEW_USAGE)
        months = months_until(_today(tenant))
        first = self._month(months)
        found = {
            **statement_of(tenant, first)._asdict(),
            "tenant_id": tenant.pk,
            "since": first,
            "until": last_day(first),
            "is_running": first == months[0],
        }
        return Response(StatementDocument(found).data)

    def _month(self, months: list[date]) -> date:
        asked = self.asked.get("month")
        known = {f"{month:%Y-%m}": month for month in months}
        if asked is not None and asked not in known:
            raise Invalid({"month": f"This month or one of the {MONTHS_BACK - 1} before."})
        return known[asked] if asked else months[0]


class UsageForecast(ApiView):
    """`/usage/forecast`"""

    @shown("get_usage_forecast", ForecastDocument, ForecastQuery)
    def get(self, request: Request) -> Response:
        """What the running month will cost: what it cost so far, and the mean of the last complete days."""
        ids = readable_usage(self.actor)
        tenant_id = self.asked.get("tenant")
        tenant = Tenant.objects.filter(pk=tenant_id).first() if ids is None or tenant_id in ids else None
        today = _today(tenant)
        wanted = {name: str(value) for name, value in self.asked.items()}
        costs = cost_by_day(Asked(Span(first_needed(today), today), ids, wanted))
        return Response(
            ForecastDocument(_said(today, so_far(costs, today), month_forecast(costs, today))).data
        )


def _today(tenant: Tenant | None) -> date:
    return day_of(datetime.now(UTC), zone(tenant.usage_zone)) if tenant else timezone.now().date()


def _said(today: date, cost_micro: int, forecast: Forecast | None) -> dict[str, Any]:
    return {
        "month": f"{today:%Y-%m}",
        "cost_so_far_micro": cost_micro,
        "cost_per_day_micro": forecast and forecast.per_day,
        "days": forecast.days if forecast else 0,
        "cost_at_month_end_micro": forecast and forecast.at_month_end,
    }
