"""Aliases: names such as `champion` that point to one version of a model and move at once."""

from __future__ import annotations

from django.db import transaction
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.conditions import refuse_changed, tag_of
from console.api.fields import Body, Document, Moment, Ref
from console.api.paging import NUMBERED
from console.api.schema import changed, listed
from console.api.views import ApiView
from serving.control.catalog.access import access_model_by_id, access_version
from serving.control.catalog.actions import set_alias
from serving.control.catalog.models import Model
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
        with transaction.atomic():
            self._refuse_changed(model, alias)
            row = set_alias(by=self.actor, model=model, alias=alias, version=version)
        return self.one(row, AliasDocument)

    def _refuse_changed(self, model: Model, alias: str) -> None:
        """An alias that is not there yet matches no tag, not even `*`."""
        wanted = self.request.headers.get("if-match")
        if wanted is None:
            return
        self.hold(model)
        known = model.aliases.select_related("model", "version").filter(alias=alias).first()
        refuse_changed(wanted, tag_of(AliasDocument(known).data) if known else None)
