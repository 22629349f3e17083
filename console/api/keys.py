"""API keys. The token is in the answer to its making, and in no other answer ever."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar

from django.urls import reverse
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.fields import Body, Document, Moment, Ref, Text
from console.api.readable import readable
from console.api.schema import Page, listed, made, shown
from console.api.views import ApiView
from tenants.access import access_key, access_tenant
from tenants.actions.keys import (
    MAX_ALLOWED_MODELS,
    MAX_NETWORKS,
    MAX_OVERLAP,
    create_key,
    revoke_key,
    roll_key,
)
from tenants.ending import ending_keys
from tenants.models import ApiKey
from tenants.roles import KEY_SCOPES, Right

STATES = ("active", "revoked", "expired")


class KeyDocument(Document):
    moving: ClassVar[tuple[str, ...]] = ("last_used_at", "last_used_class", "last_used_network", "state")

    id = serializers.CharField()
    tenant = Ref("tnt_")
    name = serializers.CharField()
    display = serializers.CharField(help_text="What may be shown of the token.")
    scopes = serializers.ListField(child=serializers.CharField())
    allowed_models = serializers.ListField(child=serializers.CharField(), allow_null=True)
    allowed_networks = serializers.ListField(child=serializers.CharField(), allow_null=True)
    state = serializers.ChoiceField(choices=STATES)
    expires_at = Moment(allow_null=True)
    replaced_by = serializers.CharField(
        source="replaced_by_id", allow_null=True, help_text="The key it was rolled to."
    )
    revoked_at = Moment(allow_null=True)
    last_used_at = Moment(allow_null=True)
    last_used_class = serializers.CharField(
        help_text="Of the address it was used from: loopback, private, public or unknown; empty for none."
    )
    last_used_network = serializers.CharField(
        help_text="The /24 or /48 of that address; empty where there is none to tell."
    )
    created_at = Moment()
    created_by = serializers.CharField()


class NewKeyDocument(KeyDocument):
    moving: ClassVar[tuple[str, ...]] = (*KeyDocument.moving, "token")

    token = serializers.CharField(
        allow_null=True, help_text="Shown once; null when the answer is a replay of an Idempotency-Key."
    )


class KeyBody(Body):
    name = Text(max_length=100)
    scopes = serializers.ListField(
        child=serializers.ChoiceField(choices=list(KEY_SCOPES)),
        default=["infer"],
        min_length=1,
        max_length=16,
    )
    allowed_models = serializers.ListField(
        child=Text(max_length=100),
        allow_null=True,
        required=False,
        min_length=1,
        max_length=MAX_ALLOWED_MODELS,
        help_text="Names of models; absent or null allows every model of the tenant.",
    )
    allowed_networks = serializers.ListField(
        child=Text(max_length=43),
        allow_null=True,
        required=False,
        min_length=1,
        max_length=MAX_NETWORKS,
        help_text="CIDRs such as 192.0.2.0/24; absent or null allows every address.",
    )
    expires_at = Moment(allow_null=True, required=False)


class RollBody(Body):
    overlap_s = serializers.IntegerField(
        default=24 * 3600,
        min_value=0,
        max_value=int(MAX_OVERLAP.total_seconds()),
        help_text="How long the old key works beside the new one, or until its own expiry if that is sooner.",
    )
    expires_at = Moment(allow_null=True, required=False, help_text="Of the new key.")


class KeyQuery(Page):
    tenant = serializers.CharField(required=False, max_length=40)
    ending = serializers.BooleanField(
        default=False, help_text="Only keys that end within 14 days and that nothing was put in the place of."
    )


class Keys(ApiView):
    """`/keys`"""

    @listed("list_keys", KeyDocument, KeyQuery)
    def get(self, request: Request) -> Response:
        """Keys of every tenant you may see, the newest first."""
        rows = (ending_keys() if self.asked["ending"] else ApiKey.objects.all()).select_related("tenant")
        ids = readable(self.actor, Right.VIEW)
        if ids is not None:
            rows = rows.filter(tenant_id__in=ids)
        if "tenant" in self.asked:
            rows = rows.filter(tenant_id=self.asked["tenant"])
        return self.rows(rows, KeyDocument)


class TenantKeys(ApiView):
    """`/tenants/{id}/keys`"""

    @listed("list_tenant_keys", KeyDocument)
    def get(self, request: Request, tenant_id: str) -> Response:
        """Keys of one tenant, the newest first."""
        tenant = access_tenant(self.actor, tenant_id)
        return self.rows(ApiKey.objects.select_related("tenant").filter(tenant=tenant), KeyDocument)

    @made("create_key", KeyBody, NewKeyDocument)
    def post(self, request: Request, tenant_id: str) -> Response:
        """Make a key. Its token is in this answer and nowhere else."""
        tenant = access_tenant(self.actor, tenant_id, Right.MANAGE_KEYS)
        values = self.read(KeyBody)

        def act() -> ApiKey:
            key, token = create_key(by=self.actor, tenant=tenant, **values)
            key.token = token  # type: ignore[attr-defined]
            return key

        return self.make(act, NewKeyDocument, lambda key: reverse("api_key", args=[key.pk]))


class OneKey(ApiView):
    """`/keys/{id}`"""

    @shown("get_key", KeyDocument)
    def get(self, request: Request, key_id: str) -> Response:
        """One key, without its secret."""
        return self.one(access_key(self.actor, key_id), KeyDocument)


class RollKey(ApiView):
    """`/keys/{id}/roll`"""

    @made("roll_key", RollBody, NewKeyDocument)
    def post(self, request: Request, key_id: str) -> Response:
        """Put a new key of the same name, scopes, models and networks beside it. The token is in this answer only."""
        key = access_key(self.actor, key_id, Right.MANAGE_KEYS)
        values = self.read(RollBody)
        overlap = timedelta(seconds=values.pop("overlap_s"))

        def act() -> ApiKey:
            fresh, token = roll_key(by=self.actor, key=key, overlap=overlap, **values)
            fresh.token = token  # type: ignore[attr-defined]
            return fresh

        return self.make(act, NewKeyDocument, lambda fresh: reverse("api_key", args=[fresh.pk]))


class RevokeKey(ApiView):
    """`/keys/{id}/revoke`"""

    @made("revoke_key", None, KeyDocument, status=200)
    def post(self, request: Request, key_id: str) -> Response:
        """Refuse the key on every gateway within a second, for ever."""

        def act(key: ApiKey) -> Any:
            return revoke_key(by=self.actor, key=key)

        return self.change(lambda: access_key(self.actor, key_id, Right.MANAGE_KEYS), act, KeyDocument)
