"""Who asks, and what they may do where."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.fields import Document
from console.api.schema import shown
from console.api.views import ApiView
from tenants.access import visible_tenants
from tenants.actors import Actor

MAX_TENANTS = 100


class OwnTenantDocument(Document):
    id = serializers.CharField()
    slug = serializers.CharField()
    rights = serializers.ListField(child=serializers.CharField())


class MeDocument(Document):
    type = serializers.ChoiceField(choices=["user", "api_key"])
    id = serializers.CharField()
    name = serializers.CharField()
    platform_rights = serializers.ListField(child=serializers.CharField())
    tenants = OwnTenantDocument(many=True, help_text="At most 100; `/tenants` lists all.")


class Me(ApiView):
    """`/me`"""

    @shown("get_me", MeDocument)
    def get(self, request: Request) -> Response:
        """The account behind this request."""
        return Response(_said(self.actor))


def _said(actor: Actor) -> dict[str, Any]:
    own = visible_tenants(actor).filter(pk__in=list(actor.tenant_ids)).order_by("slug")[:MAX_TENANTS]
    return {
        "type": actor.type,
        "id": actor.id,
        "name": actor.name,
        "platform_rights": sorted(actor.platform_rights),
        "tenants": [{"id": t.pk, "slug": t.slug, "rights": sorted(actor.rights_in(t.pk))} for t in own],
    }
