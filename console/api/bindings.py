"""Bindings: tenant × model × endpoint → SLA profile, where an absent one stands for all."""

from __future__ import annotations

from typing import Any

from django.urls import reverse
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.fields import Body, Document, Moment, Ref
from console.api.schema import Page, Rehearsed, gone, listed, made, shown
from console.api.views import ApiView
from serving.control.catalog.access import access_model_by_id
from serving.control.profiles.access import access_binding, access_profile, visible_bindings
from serving.control.profiles.actions import bind_profile, unbind_profile
from serving.control.profiles.models import ProfileBinding
from serving.profiles import ENDPOINTS
from tenants.access import access_tenant, require, scope_of
from tenants.roles import Right


class BindingDocument(Document):
    id = serializers.CharField()
    profile = Ref("pro_")
    tenant = Ref("tnt_", allow_null=True)
    model = Ref("mdl_", allow_null=True)
    endpoint = serializers.ChoiceField(choices=ENDPOINTS, allow_null=True)
    created_at = Moment()


class BindingBody(Body):
    profile = Ref("pro_")
    tenant = Ref("tnt_", allow_null=True, default=None)
    model = Ref("mdl_", allow_null=True, default=None)
    endpoint = serializers.ChoiceField(choices=ENDPOINTS, allow_null=True, default=None)


class BindingQuery(Page):
    tenant = serializers.CharField(required=False, max_length=40)
    profile = serializers.CharField(required=False, max_length=40)


class Bindings(ApiView):
    """`/bindings`"""

    @listed("list_bindings", BindingDocument, BindingQuery)
    def get(self, request: Request) -> Response:
        """Bindings that can apply to you, newest first."""
        wanted = {name: self.asked[name] for name in ("tenant", "profile") if name in self.asked}
        with scope_of(self.actor):
            return self.rows(visible_bindings(self.actor, **wanted), BindingDocument)

    @made("bind_profile", BindingBody, BindingDocument, Rehearsed)
    def post(self, request: Request) -> Response:
        """Bind a target to a profile; a target bound before moves to it."""
        require(self.actor, Right.MANAGE_PROFILES)
        values = self.read(BindingBody)
        values["profile"] = self.named("profile", access_profile, values["profile"])
        for field, gate in (("tenant", access_tenant), ("model", access_model_by_id)):
            if values[field] is not None:
                values[field] = self.named(field, gate, values[field])
        return self.make(lambda: bind_profile(by=self.actor, **values), BindingDocument, address_of)


class OneBinding(ApiView):
    """`/bindings/{id}`"""

    @shown("get_binding", BindingDocument)
    def get(self, request: Request, binding_id: str) -> Response:
        """One binding."""
        return self.one(access_binding(self.actor, binding_id), BindingDocument)

    @gone("unbind_profile", Rehearsed)
    def delete(self, request: Request, binding_id: str) -> Response:
        """The target falls back to the next wider binding. The platform's default stays."""

        def act(binding: ProfileBinding) -> Any:
            return unbind_profile(by=self.actor, binding=binding)

        return self.remove(
            lambda: access_binding(self.actor, binding_id, Right.MANAGE_PROFILES), act, BindingDocument
        )


def address_of(binding: ProfileBinding) -> str:
    return reverse("api_binding", args=[binding.pk])
