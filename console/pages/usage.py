"""Usage and cost by day, tenant and model, out of the ledger."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models.functions import TruncDay
from django.http import HttpResponse
from django.utils import timezone

from console.pages.answers import page, show
from console.pages.ledger import sums_by, total_of
from console.requests import ConsoleRequest
from tenants.access import require
from tenants.models import UsageMinute
from tenants.roles import Right

SPANS_DAYS = (1, 7, 30, 90)
MAX_ROWS = 500


@page("usage")
def index(request: ConsoleRequest) -> HttpResponse:
    days = _days(request)
    model = request.GET.get("model", "").strip()[:100]
    tenant_ids = _readable(request)
    rows = UsageMinute.objects.filter(minute__gte=_since(days))
    if tenant_ids is not None:
        rows = rows.filter(tenant_id__in=tenant_ids)
    models = sorted(set(rows.order_by().values_list("model", flat=True).distinct()))
    chosen = rows.filter(model=model) if model else rows
    by_day = sums_by(chosen.annotate(day=TruncDay("minute")), "-day", "tenant_id", "tenant_name", "model")
    top = max((row["cost_micro"] for row in by_day), default=0)
    for row in by_day:
        row["cost_share"] = row["cost_micro"] / top if top else 0
    return show(
        request,
        "pages/usage.html",
        rows=by_day[:MAX_ROWS],
        is_cut=len(by_day) > MAX_ROWS,
        total=total_of(by_day),
        models=models,
        model=model,
        days=days,
        spans=SPANS_DAYS,
    )


def _readable(request: ConsoleRequest) -> list[str] | None:
    """Tenants whose usage may be read; None for all of the scope."""
    if request.tenant is not None:
        require(request.actor, Right.VIEW_USAGE, request.tenant.pk)
        return [request.tenant.pk]
    if request.actor.sees_platform:
        return None
    return [i for i in request.actor.tenant_ids if request.actor.has(Right.VIEW_USAGE, i)]


def _days(request: ConsoleRequest) -> int:
    asked = request.GET.get("days", "")
    return next((days for days in SPANS_DAYS if asked == str(days)), 30)


def _since(days: int) -> datetime:
    """The start of the first day shown, in the viewer's zone."""
    today = timezone.localtime().replace(hour=0, minute=0, second=0, microsecond=0)
    return today - timedelta(days=days - 1)
