"""How quotas stand now: what gateways took of them, out of their own accounts."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.fields import Document, Moment
from console.api.paging import page_of
from console.api.schema import listed, shown
from console.api.views import ApiView
from serving.control.quotas.access import access_quota, visible_quotas
from serving.control.quotas.accounts import standings_or_none
from serving.control.quotas.models import Quota
from serving.control.quotas.watching import standing_now
from tenants.access import access_tenant


class StandingDocument(Document):
    """Amounts in base units. A null is not known: nothing was used yet, or the accounts cannot be read now."""

    quota = serializers.CharField()
    resource = serializers.CharField()
    window = serializers.CharField()
    limit = serializers.IntegerField()
    used = serializers.IntegerField(allow_null=True, help_text="Of budgets: since the window began.")
    reserved = serializers.IntegerField(allow_null=True, help_text="For requests under way.")
    remaining = serializers.IntegerField(allow_null=True)
    resets_at = Moment(allow_null=True, help_text="When the window of a budget ends.")


class TenantStandings(ApiView):
    """`/tenants/{id}/quota-standings`"""

    @listed("list_quota_standings", StandingDocument)
    def get(self, request: Request, tenant_id: str) -> Response:
        """How every quota of a tenant stands, in the order of its quotas."""
        tenant = access_tenant(self.actor, tenant_id)
        limit, after = self.asked["limit"], self.asked["after"]
        page = page_of(visible_quotas().filter(tenant=tenant), lambda row: row, limit=limit, after=after)
        return Response({**page, "data": _standings(page["data"])})


class QuotaStanding(ApiView):
    """`/quotas/{id}/standing`"""

    @shown("get_quota_standing", StandingDocument)
    def get(self, request: Request, quota_id: str) -> Response:
        """How one quota stands."""
        return Response(_standings([access_quota(self.actor, quota_id)])[0])


def _standings(quotas: list[Quota]) -> list[Any]:
    known, now = standings_or_none(quotas), timezone.now()
    said = [_said(quota, *standing_now(quota, known, now)) for quota in quotas]
    return [StandingDocument(one).data for one in said]


def _said(quota: Quota, used: int | None, reserved: int | None, resets_at: Any) -> dict[str, Any]:
    taken = (used or 0) + (reserved or 0)
    is_known = used is not None or reserved is not None
    return {
        "quota": quota.pk,
        "resource": quota.resource,
        "window": quota.window,
        "limit": quota.limit,
        "used": used,
        "reserved": reserved,
        "remaining": max(0, quota.limit - taken) if is_known else None,
        "resets_at": resets_at,
    }
