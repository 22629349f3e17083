"""Tenants: made and paused by operators, named by their own people."""

from __future__ import annotations

from typing import Any

from django.urls import reverse
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.fields import Body, Document, Moment, Number, Text, Whole
from console.api.readable import readable
from console.api.schema import Page, Rehearsed, changed, listed, made, shown
from console.api.views import ApiView
from tenants.access import access_tenant, visible_tenants
from tenants.actions.tenants import create_tenant, resume_tenant, suspend_tenant, update_tenant
from tenants.models import SLUG_PATTERN, Tenant
from tenants.roles import Right

MAX_RATE = 1e9


class TenantDocument(Document):
    id = serializers.CharField()
    slug = serializers.CharField()
    name = serializers.CharField()
    organisation = serializers.CharField(
        source="organisation_id", allow_null=True, help_text="The one it belongs to, an id `org_…`."
    )
    is_active = serializers.BooleanField()
    suspended_reason = serializers.CharField()
    max_concurrency = serializers.IntegerField()
    requests_per_s = serializers.FloatField(allow_null=True)
    burst = serializers.IntegerField(allow_null=True)
    time_zone = serializers.CharField(help_text="IANA name; where days and months begin.")
    created_at = Moment()
    updated_at = Moment()


class TenantChange(Body):
    """What may change. Its own admins set the name, operators the rest."""

    name = Text(max_length=100, required=False)
    max_concurrency = Whole(min_value=1, required=False)
    requests_per_s = Number(min_value=0.01, max_value=MAX_RATE, allow_null=True, required=False)
    burst = Whole(min_value=1, allow_null=True, required=False)
    time_zone = Text(max_length=64, required=False)


class TenantBody(TenantChange):
    slug = serializers.RegexField(SLUG_PATTERN, max_length=40)
    name = Text(max_length=100)


class ReasonBody(Body):
    reason = Text(max_length=200, required=False, allow_blank=True)


class TenantQuery(Page):
    slug = serializers.CharField(required=False, max_length=40)
    is_active = serializers.BooleanField(required=False, default=None, allow_null=True)


class Tenants(ApiView):
    """`/tenants`"""

    @listed("list_tenants", TenantDocument, TenantQuery)
    def get(self, request: Request) -> Response:
        """Tenants you may see, newest first."""
        rows = visible_tenants(self.actor)
        ids = readable(self.actor, Right.VIEW)
        if ids is not None:
            rows = rows.filter(pk__in=ids)
        wanted = {name: self.asked.get(name) for name in ("slug", "is_active")}
        rows = rows.filter(**{name: value for name, value in wanted.items() if value is not None})
        return self.rows(rows, TenantDocument)

    @made("create_tenant", TenantBody, TenantDocument, Rehearsed)
    def post(self, request: Request) -> Response:
        """Make a tenant."""
        values = self.read(TenantBody)
        return self.make(lambda: create_tenant(by=self.actor, **values), TenantDocument, address_of)


class OneTenant(ApiView):
    """`/tenants/{id}`"""

    @shown("get_tenant", TenantDocument)
    def get(self, request: Request, tenant_id: str) -> Response:
        """One tenant."""
        return self.one(access_tenant(self.actor, tenant_id), TenantDocument)

    @changed("change_tenant", TenantChange, TenantDocument, Rehearsed)
    def patch(self, request: Request, tenant_id: str) -> Response:
        """Change a tenant's name, limits or time zone."""
        values = self.read(TenantChange)

        def act(tenant: Tenant) -> Any:
            return update_tenant(by=self.actor, tenant=tenant, **values)

        return self.change(
            lambda: access_tenant(self.actor, tenant_id, Right.EDIT_TENANT), act, TenantDocument
        )


class SuspendTenant(ApiView):
    """`/tenants/{id}/suspend`"""

    @made("suspend_tenant", ReasonBody, TenantDocument, status=200)
    def post(self, request: Request, tenant_id: str) -> Response:
        """Refuse every request of the tenant until it is resumed."""
        reason = self.read(ReasonBody).get("reason", "")

        def act(tenant: Tenant) -> Any:
            return suspend_tenant(by=self.actor, tenant=tenant, reason=reason)

        return self.change(
            lambda: access_tenant(self.actor, tenant_id, Right.MANAGE_TENANTS), act, TenantDocument
        )


class ResumeTenant(ApiView):
    """`/tenants/{id}/resume`"""

    @made("resume_tenant", None, TenantDocument, status=200)
    def post(self, request: Request, tenant_id: str) -> Response:
        """Let a suspended tenant's requests in again."""

        def act(tenant: Tenant) -> Any:
            return resume_tenant(by=self.actor, tenant=tenant)

        return self.change(
            lambda: access_tenant(self.actor, tenant_id, Right.MANAGE_TENANTS), act, TenantDocument
        )


def address_of(tenant: Tenant) -> str:
    return reverse("api_tenant", args=[tenant.pk])
