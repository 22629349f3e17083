"""Whose trail is asked for: a tenant's, or (null) the platform's with every event there is."""

from __future__ import annotations

from typing import Any, TypeVar

from django.db.models import Model, QuerySet
from rest_framework import serializers

from console.api.fields import Query, Ref
from console.api.readable import readable
from console.api.schema import Page
from console.api.views import ApiView
from tenants.access import access_tenant, require
from tenants.models import Tenant
from tenants.roles import Right

Row = TypeVar("Row", bound=Model)
TENANT_HELP = "Null for the platform: operators only."


def trail_field() -> Ref:
    return Ref("tnt_", allow_null=True, default=None, help_text=TENANT_HELP)


class TrailPage(Page):
    tenant = serializers.CharField(required=False, max_length=40)


class TrailQuery(Query):
    tenant = serializers.CharField(
        required=False, max_length=40, help_text="Without it the platform's: operators and support only."
    )


def trail_rows(view: ApiView, rows: QuerySet[Row], right: Right) -> QuerySet[Row]:
    """Of the trails in which the actor holds the right; refused for who holds it in none."""
    ids = readable(view.actor, right)
    if ids is not None:
        rows = rows.filter(tenant_id__in=ids)
    if ids == []:
        require(view.actor, right)
    return rows.filter(tenant_id=view.asked["tenant"]) if "tenant" in view.asked else rows


def named_trail(view: ApiView, tenant_id: str | None, *rights: Right) -> Tenant | None:
    """What a body's `tenant` names. Who exports need not see the tenant's pages: a key with `audit:export` does not."""
    if tenant_id is None:
        for right in rights:
            require(view.actor, right)
        return None

    def gate(actor: Any, named: str) -> Tenant:
        return access_tenant(actor, named, rights[0])

    tenant = view.named("tenant", gate, tenant_id)
    for right in rights:
        require(view.actor, right, tenant.pk)
    return tenant


def asked_trail(view: ApiView, *rights: Right) -> Tenant | None:
    """What `?tenant=` names. Raises `NotFound` like an address."""
    tenant_id = view.asked.get("tenant")
    tenant = None if tenant_id is None else access_tenant(view.actor, tenant_id, rights[0])
    for right in rights:
        require(view.actor, right, tenant.pk if tenant else None)
    return tenant
