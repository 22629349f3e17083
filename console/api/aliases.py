"""Aliases: names such as `champion` that point to one version of a model and move at once."""

from __future__ import annotations

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.fields import Body, Document, Moment, Ref
from console.api.paging import NUMBERED
from console.api.schema import changed, listed
from console.api.views import ApiView
from serving.control.catalog.access import access_model_by_id, access_version
from serving.control.catalog.actions import set_alias
from tenants.roles import Right


class AliasDocument(Document):
    alias = serializers.CharField()
    model = Ref("mdl_")
    version = Ref("mv_")
    number = serializers.IntegerField(source="version.number")
    updated_at = Moment()


class AliasBody(Body):
    version = Ref("mv_")


class Aliases(ApiView):
    """`/models/{id}/aliases`"""

    @listed("list_aliases", AliasDocument)
    def get(self, request: Request, model_id: str) -> Response:
        """Aliases of a model."""
        model = access_model_by_id(self.actor, model_id)
        return self.rows(model.aliases.select_related("model", "version"), AliasDocument, NUMBERED)


class OneAlias(ApiView):
    """`/models/{id}/aliases/{alias}`"""

    @changed("set_alias", AliasBody, AliasDocument)
    def put(self, request: Request, model_id: str, alias: str) -> Response:
        """Point the alias at a ready version; one that exists moves."""
        model = access_model_by_id(self.actor, model_id, Right.MANAGE_MODELS)
        version = self.named("version", access_version, self.read(AliasBody)["version"])
        row = set_alias(by=self.actor, model=model, alias=alias, version=version)
        return self.one(row, AliasDocument)
