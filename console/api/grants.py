"""Grants: which tenants may use a model that is not public."""

from __future__ import annotations

from django.urls import reverse
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.fields import Body, Document, Moment, Ref
from console.api.paging import NEWEST_NUMBERED
from console.api.schema import gone, listed, made
from console.api.views import ApiView
from serving.control.catalog.access import access_model_by_id
from serving.control.catalog.actions import grant_model, revoke_grant
from serving.control.catalog.models import Model, ModelGrant
from tenants.access import access_tenant
from tenants.errors import NotFound
from tenants.roles import Right
from tenants.scoping import all_tenants

_PLATFORMS = "grants are the platform's to read, whichever tenant it looks at"


class GrantDocument(Document):
    model = Ref("mdl_")
    tenant = Ref("tnt_")
    tenant_slug = serializers.CharField(source="tenant.slug")
    created_at = Moment()


class GrantBody(Body):
    tenant = Ref("tnt_")


class Grants(ApiView):
    """`/models/{id}/grants`"""

    @listed("list_grants", GrantDocument)
    def get(self, request: Request, model_id: str) -> Response:
        """Tenants that hold a grant, newest first."""
        model = access_model_by_id(self.actor, model_id, Right.VIEW_PLATFORM)
        with all_tenants(_PLATFORMS):
            rows = model.grants.select_related("tenant", "model")
            return self.rows(rows, GrantDocument, NEWEST_NUMBERED)

    @made("grant_model", GrantBody, GrantDocument)
    def post(self, request: Request, model_id: str) -> Response:
        """Let a tenant use the model. Granting twice is one grant."""
        model = access_model_by_id(self.actor, model_id, Right.MANAGE_MODELS)
        tenant = self.named("tenant", access_tenant, self.read(GrantBody)["tenant"])

        def act() -> ModelGrant:
            return grant_model(by=self.actor, model=model, tenant=tenant)

        return self.make(
            act, GrantDocument, lambda grant: reverse("api_grant", args=[model.pk, grant.tenant_id])
        )


class OneGrant(ApiView):
    """`/models/{id}/grants/{tenant_id}`"""

    @gone("revoke_grant")
    def delete(self, request: Request, model_id: str, tenant_id: str) -> Response:
        """Take the grant away."""

        def fetch() -> ModelGrant:
            model = access_model_by_id(self.actor, model_id, Right.MANAGE_MODELS)
            return _grant(model, access_tenant(self.actor, tenant_id).pk)

        def act(grant: ModelGrant) -> None:
            revoke_grant(by=self.actor, model=grant.model, tenant=grant.tenant)

        return self.remove(fetch, act, GrantDocument)


def _grant(model: Model, tenant_id: str) -> ModelGrant:
    with all_tenants(_PLATFORMS):
        found = model.grants.select_related("tenant", "model").filter(tenant_id=tenant_id).first()
    if found is None:
        raise NotFound("grant")
    return found
