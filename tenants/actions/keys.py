"""API keys: shown once when they are made, gone for every gateway within a second when revoked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from tenants.access import require
from tenants.actions.tenants import lock_tenant
from tenants.actors import Actor
from tenants.audit import record
from tenants.changes import announce
from tenants.errors import Conflict, Invalid
from tenants.keys import digest_secret, new_token
from tenants.models import ApiKey, Tenant
from tenants.roles import KEY_SCOPES, NO_RIGHTS, Right, can_give_scope
from tenants.scoping import tenant_scope
from tenants.validation import save_valid

MAX_ALLOWED_MODELS = 100
MAX_ACTIVE_KEYS = 200
"""Of one tenant: every gateway holds every active key, and a page lists them all."""
_MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@transaction.atomic
def create_key(
    *,
    by: Actor,
    tenant: Tenant,
    name: str,
    scopes: Iterable[str] = ("infer",),
    allowed_models: Sequence[str] | None = None,
    expires_at: datetime | None = None,
) -> tuple[ApiKey, str]:
    """Returns the key and its token; the token exists nowhere else and cannot be shown again.

    Raises `Conflict` for a tenant that has `MAX_ACTIVE_KEYS` already.
    """
    require(by, Right.MANAGE_KEYS, tenant.pk)
    wanted = sorted(set(scopes))
    models = None if allowed_models is None else sorted(set(allowed_models))
    _check(wanted, models, expires_at)
    _check_scopes_are_own(by, tenant, wanted)
    _leave_room(tenant)
    fresh = new_token()
    key = ApiKey(
        id=fresh.id,
        tenant=tenant,
        name=name,
        prefix=fresh.prefix,
        last_four=fresh.last_four,
        digest=digest_secret(fresh.secret, settings.KEY_PEPPER),
        scopes=wanted,
        allowed_models=models,
        expires_at=expires_at,
        created_by=by.name,
        creator_id=by.person_id,
    )
    save_valid(key)
    after = {"name": name, "scopes": wanted, "allowed_models": models, "expires_at": expires_at}
    record(by=by, action="key.created", target=key, after=after, tenant=tenant)
    announce("key", key.pk)
    return key, fresh.token


@transaction.atomic
def revoke_key(*, by: Actor, key: ApiKey) -> ApiKey:
    """For ever; raises `Conflict` when it was revoked before."""
    require(by, Right.MANAGE_KEYS, key.tenant_id)
    with tenant_scope(key.tenant_id):
        # The conditional update is the claim: of two at once, one revokes and one is told so.
        now = timezone.now()
        claimed = ApiKey.objects.filter(pk=key.pk, revoked_at__isnull=True).update(revoked_at=now)
        if not claimed:
            raise Conflict("The key is revoked already.")
        revoked = ApiKey.objects.select_related("tenant").get(pk=key.pk)
    record(
        by=by,
        action="key.revoked",
        target=revoked,
        before={"state": "active"},
        after={"state": "revoked"},
        tenant=revoked.tenant,
    )
    announce("key", revoked.pk)
    return revoked


def _leave_room(tenant: Tenant) -> None:
    lock_tenant(tenant)  # two keys at once must not both be the last one
    with tenant_scope(tenant.pk):
        is_live = Q(expires_at__isnull=True) | Q(expires_at__gt=timezone.now())
        active = ApiKey.objects.filter(is_live, revoked_at__isnull=True).count()
    if active >= MAX_ACTIVE_KEYS:
        raise Conflict(f"The tenant has {active} active keys. Revoke those that nothing uses any more.")


def _check(scopes: list[str], models: list[str] | None, expires_at: datetime | None) -> None:
    errors = {
        "scopes": _wrong_scopes(scopes),
        "allowed_models": _wrong_models(models),
        "expires_at": _wrong_expiry(expires_at),
    }
    said = {field: message for field, message in errors.items() if message}
    if said:
        raise Invalid(said)


def _check_scopes_are_own(by: Actor, tenant: Tenant, scopes: list[str]) -> None:
    # The system's own rights are nobody's: a key that answers to no person could not use them anyway.
    own = NO_RIGHTS if by.person_id is None else by.rights_in(tenant.pk)
    above = [scope for scope in scopes if not can_give_scope(own, scope)]
    if above:
        raise Invalid({"scopes": f"Not above your own rights: {', '.join(above)}."})


def _wrong_scopes(scopes: list[str]) -> str:
    unknown = [scope for scope in scopes if scope not in KEY_SCOPES]
    if unknown:
        return f"Unknown: {', '.join(unknown)}. Known scopes: {', '.join(KEY_SCOPES)}."
    return "" if scopes else "A key needs at least one scope."


def _wrong_models(models: list[str] | None) -> str:
    if models is None:
        return ""
    if not models:
        return "Name at least one model, or leave it out to allow every model of the tenant."
    if len(models) > MAX_ALLOWED_MODELS:
        return f"At most {MAX_ALLOWED_MODELS} models."
    wrong = [name for name in models if not _MODEL_NAME.fullmatch(name)]
    return f"Not a model's name: {', '.join(wrong)}." if wrong else ""


def _wrong_expiry(expires_at: datetime | None) -> str:
    if expires_at is None:
        return ""
    if timezone.is_naive(expires_at):
        return "The expiry needs a time zone."
    return "" if expires_at > timezone.now() else "The expiry lies in the past."
