"""Who asks: a person in the console's session, or a tenant's API key with a scope for it."""

from __future__ import annotations

from hmac import compare_digest
from typing import Any, cast

from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework import exceptions
from rest_framework.authentication import BaseAuthentication, SessionAuthentication
from rest_framework.request import Request

from tenants.actors import Actor
from tenants.keys import digest_secret, parse_token
from tenants.models import ApiKey
from tenants.scoping import all_tenants

SCHEME = "Bearer"


class ByKey(BaseAuthentication):
    """`Authorization: Bearer tg_…`. What the key may do follows from its scopes and its creator's rights now."""

    def authenticate(self, request: Request) -> tuple[Any, ApiKey] | None:
        """None without the header; raises `NotAuthenticated` for one that opens nothing."""
        token = _token_of(request)
        if token is None:
            return None
        key = _key_of(token)
        if key is None:
            raise exceptions.NotAuthenticated("This API key is unknown, revoked or expired.")
        actor = Actor.of_key(key, request._request)
        request._request.actor = actor  # type: ignore[attr-defined]  # also for the event of a refusal
        if not key.may_be_used_from(actor.ip):
            raise exceptions.PermissionDenied("This API key may not be used from this address.")
        return AnonymousUser(), key

    def authenticate_header(self, request: Request) -> str:
        return SCHEME


class SignedIn(SessionAuthentication):
    """The console's session, with its CSRF token for everything that writes."""

    def authenticate(self, request: Request) -> tuple[Any, None]:
        """Raises `NotAuthenticated` for whoever is not signed in: nothing here is for strangers."""
        found = super().authenticate(request)
        if found is None:
            raise exceptions.NotAuthenticated("Sign in, or send an API key.")
        return cast(tuple[Any, None], found)


class ByKeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """What the OpenAPI document says of `ByKey`; being defined registers it."""

    target_class = ByKey
    name = "key"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "bearerFormat": "tg_…"}


class SignedInScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = SignedIn
    name = "session"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "apiKey", "in": "cookie", "name": settings.SESSION_COOKIE_NAME}


def _token_of(request: Request) -> str | None:
    """None when the request names no key. Other schemes are none of ours, and refused as such."""
    given = request.headers.get("authorization")
    if given is None:
        return None
    scheme, _, token = given.partition(" ")
    if scheme.lower() != SCHEME.lower():
        raise exceptions.NotAuthenticated("Authorization: Bearer and an API key.")
    return token.strip()


def _key_of(token: str) -> ApiKey | None:
    parsed = parse_token(token)
    if parsed is None:
        return None
    key_id, secret = parsed
    with all_tenants("the key says whose request this is"):
        key = ApiKey.objects.select_related("tenant", "creator").filter(pk=key_id).first()
    # Digested also for a key that is not there: the time of a refusal tells nobody which ids exist.
    digest = digest_secret(secret, settings.KEY_PEPPER)
    known = bytes(key.digest) if key is not None else bytes(len(digest))
    is_right = compare_digest(digest, known)
    return key if is_right and key is not None and key.state == "active" else None
