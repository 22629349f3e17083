"""Models: the names tenants call. Made and opened by operators, seen by whoever may use them."""

from __future__ import annotations

from typing import Any

from django.urls import reverse
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.fields import Body, Document, Flag, Moment, Ref, Text, Whole
from console.api.schema import Page, changed, listed, made, shown
from console.api.views import ApiView
from serving.control.catalog.access import access_model_by_id, visible_models
from serving.control.catalog.actions import create_model, facts_of, update_model
from serving.control.catalog.models import MAX_POOL, MODEL_NAME, Idle, Model
from tenants.access import access_tenant, require
from tenants.models import Tenant
from tenants.roles import Right

MAX_TENANTS = 100


class ModelDocument(Document):
    id = serializers.CharField()
    name = serializers.CharField()
    description = serializers.CharField()
    is_public = serializers.BooleanField(help_text="Every tenant may use it; otherwise those with a grant.")
    pool_requests_per_s = serializers.IntegerField(
        allow_null=True, help_text="What all tenants may ask of it together; null for no limit."
    )
    pool_concurrency = serializers.IntegerField(allow_null=True, help_text="In flight, of all tenants.")
    idle_policy = serializers.CharField(
        help_text="Who bears the cost of replicas that stand ready unused: `none`, `by_use`, `by_grant`, `by_guarantee`."
    )
    created_at = Moment()


class ModelChange(Body):
    description = Text(required=False, allow_blank=True, max_length=10_000)
    is_public = Flag(required=False)
    pool_requests_per_s = Whole(min_value=1, max_value=MAX_POOL, allow_null=True, required=False)
    pool_concurrency = Whole(min_value=1, max_value=MAX_POOL, allow_null=True, required=False)
    idle_policy = serializers.ChoiceField(choices=Idle.values, required=False)


class ModelBody(Body):
    name = serializers.RegexField(MODEL_NAME, max_length=63)
    description = Text(required=False, allow_blank=True, max_length=10_000)
    tenants = serializers.ListField(
        child=Ref("tnt_"),
        allow_null=True,
        default=None,
        max_length=MAX_TENANTS,
        help_text="Who may use it; null (the default) for every tenant, now and later.",
    )


class ModelQuery(Page):
    name = serializers.CharField(required=False, max_length=63)


class Models(ApiView):
    """`/models`"""

    @listed("list_models", ModelDocument, ModelQuery)
    def get(self, request: Request) -> Response:
        """Models you may use, newest first."""
        rows = visible_models(self.actor)
        if "name" in self.asked:
            rows = rows.filter(name=self.asked["name"])
        return self.rows(rows, ModelDocument)

    @made("create_model", ModelBody, ModelDocument)
    def post(self, request: Request) -> Response:
        """Make a model. Then register a version of it."""
        require(self.actor, Right.MANAGE_MODELS)
        values = self.read(ModelBody)
        values["tenants"] = self._tenants(values["tenants"])
        return self.make(lambda: create_model(by=self.actor, **values), ModelDocument, address_of)

    def _tenants(self, ids: list[str] | None) -> list[Tenant] | None:
        if ids is None:
            return None
        return [
            self.named(f"tenants.{index}", access_tenant, tenant_id) for index, tenant_id in enumerate(ids)
        ]


class OneModel(ApiView):
    """`/models/{id}`"""

    @shown("get_model", ModelDocument)
    def get(self, request: Request, model_id: str) -> Response:
        """One model."""
        return self.one(access_model_by_id(self.actor, model_id), ModelDocument)

    @changed("change_model", ModelChange, ModelDocument)
    def patch(self, request: Request, model_id: str) -> Response:
        """Describe a model, open it to every tenant or close it, set what its tenants share."""
        values = self.read(ModelChange)

        def act(model: Model) -> Any:
            return update_model(by=self.actor, model=model, **{**facts_of(model), **values})

        return self.change(
            lambda: access_model_by_id(self.actor, model_id, Right.MANAGE_MODELS), act, ModelDocument
        )


def address_of(model: Model) -> str:
    return reverse("api_model", args=[model.pk])
