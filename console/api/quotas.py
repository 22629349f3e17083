"""Quotas: how much of what, per when, for whom. Amounts in base units: µs of device time, micro-units of money."""

from __future__ import annotations

from typing import Any

from django.urls import reverse
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.fields import Body, Document, Flag, Moment, Ref, Whole
from console.api.readable import readable
from console.api.schema import Page, Rehearsed, changed, gone, listed, made, shown
from console.api.views import ApiView
from serving.control.catalog.access import access_model_by_id
from serving.control.quotas.access import access_quota, visible_quotas
from serving.control.quotas.actions import create_quota, delete_quota, update_quota
from serving.control.quotas.models import MAX_LIMIT, MAX_PER_SECOND, Quota, ResourceChoice, WindowChoice
from tenants.access import access_key, access_tenant
from tenants.roles import Right


class QuotaDocument(Document):
    id = serializers.CharField()
    tenant = Ref("tnt_")
    key = Ref("key_", allow_null=True)
    model = Ref("mdl_", allow_null=True)
    resource = serializers.ChoiceField(choices=ResourceChoice.values)
    window = serializers.ChoiceField(
        choices=WindowChoice.values, help_text="Empty for requests in flight or waiting."
    )
    limit = serializers.IntegerField()
    burst = serializers.IntegerField(allow_null=True)
    guaranteed = serializers.IntegerField(
        allow_null=True, help_text="So much of the model's pool is always there for the tenant."
    )
    observe_only = serializers.BooleanField()
    soft_percent = serializers.IntegerField(allow_null=True)
    is_of_platform = serializers.BooleanField(help_text="Set by an operator; others cannot loosen it.")
    created_at = Moment()
    updated_at = Moment()


class QuotaChange(Body):
    limit = Whole(min_value=1, max_value=MAX_LIMIT, required=False)
    burst = Whole(min_value=1, max_value=MAX_PER_SECOND, allow_null=True, required=False)
    guaranteed = Whole(min_value=1, max_value=MAX_PER_SECOND, allow_null=True, required=False)
    observe_only = Flag(required=False)
    soft_percent = Whole(min_value=1, max_value=100, allow_null=True, required=False)


class QuotaBody(QuotaChange):
    key = Ref("key_", allow_null=True, default=None)
    model = Ref("mdl_", allow_null=True, default=None)
    resource = serializers.ChoiceField(choices=ResourceChoice.values)
    window = serializers.ChoiceField(choices=WindowChoice.values, default="")
    limit = Whole(min_value=1, max_value=MAX_LIMIT)


class QuotaQuery(Page):
    tenant = serializers.CharField(required=False, max_length=40)


class Quotas(ApiView):
    """`/quotas`"""

    @listed("list_quotas", QuotaDocument, QuotaQuery)
    def get(self, request: Request) -> Response:
        """Quotas of the tenants you may see, newest first."""
        rows, ids = visible_quotas(), readable(self.actor, Right.VIEW)
        if ids is not None:
            rows = rows.filter(tenant_id__in=ids)
        if "tenant" in self.asked:
            rows = rows.filter(tenant_id=self.asked["tenant"])
        return self.rows(rows, QuotaDocument)


class TenantQuotas(ApiView):
    """`/tenants/{id}/quotas`"""

    @listed("list_tenant_quotas", QuotaDocument)
    def get(self, request: Request, tenant_id: str) -> Response:
        """Quotas of one tenant, newest first."""
        tenant = access_tenant(self.actor, tenant_id)
        return self.rows(visible_quotas().filter(tenant=tenant), QuotaDocument)

    @made("create_quota", QuotaBody, QuotaDocument, Rehearsed)
    def post(self, request: Request, tenant_id: str) -> Response:
        """Limit a tenant, one of its keys, or its use of a model. Its admins may limit their keys."""
        tenant = access_tenant(self.actor, tenant_id)
        values = self.read(QuotaBody)
        for field, gate in (("key", access_key), ("model", access_model_by_id)):
            if values[field] is not None:
                values[field] = self.named(field, gate, values[field])
        return self.make(
            lambda: create_quota(by=self.actor, tenant=tenant, **values), QuotaDocument, address_of
        )


class OneQuota(ApiView):
    """`/quotas/{id}`"""

    @shown("get_quota", QuotaDocument)
    def get(self, request: Request, quota_id: str) -> Response:
        """One quota."""
        return self.one(access_quota(self.actor, quota_id), QuotaDocument)

    @changed("change_quota", QuotaChange, QuotaDocument, Rehearsed)
    def patch(self, request: Request, quota_id: str) -> Response:
        """Change a limit; every gateway follows within a second."""
        values = self.read(QuotaChange)

        def act(quota: Quota) -> Any:
            return update_quota(by=self.actor, quota=quota, **values)

        return self.change(lambda: access_quota(self.actor, quota_id, to_change=True), act, QuotaDocument)

    @gone("delete_quota", Rehearsed)
    def delete(self, request: Request, quota_id: str) -> Response:
        """Lift a quota."""

        def act(quota: Quota) -> Any:
            return delete_quota(by=self.actor, quota=quota)

        return self.remove(lambda: access_quota(self.actor, quota_id, to_change=True), act, QuotaDocument)


def address_of(quota: Quota) -> str:
    return reverse("api_quota", args=[quota.pk])
