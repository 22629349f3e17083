"""API keys: shown once when they are made, gone for every gateway within a second when revoked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from ipaddress import ip_network
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from tenants.access import require
from tenants.actions.tenants import lock_tenant
from tenants.actors import Actor
from tenants.audit import record
from tenants.bounds import refuse_beyond_maker
from tenants.changes import announce
from tenants.errors import Conflict, Invalid
from tenants.keys import digest_secret, new_token
from tenants.models import ApiKey, Tenant
from tenants.roles import KEY_SCOPES, NO_RIGHTS, Right, can_give_scope
from tenants.scoping import tenant_scope
from tenants.validation import save_valid

MAX_ALLOWED_MODELS = 100
MAX_NETWORKS = 50
MAX_OVERLAP = timedelta(days=90)
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
    allowed_networks: Sequence[str] | None = None,
    expires_at: datetime | None = None,
) -> tuple[ApiKey, str]:
    """Returns the key and its token; the token exists nowhere else and cannot be shown again.

    A key may make keys, never ones beyond its own bounds. Raises `Conflict` for a tenant that has `MAX_ACTIVE_KEYS` already.
    """
    require(by, Right.MANAGE_KEYS, tenant.pk)
    wanted = sorted(set(scopes))
    models = None if allowed_models is None else sorted(set(allowed_models))
    networks = None if allowed_networks is None else sorted(set(allowed_networks))
    _check(wanted, models, networks, expires_at)
    _check_scopes_are_own(by, tenant, wanted)
    refuse_beyond_maker(by, tenant, wanted, models, networks, expires_at)
    _leave_room(tenant)
    key, token = _new_key(
        by,
        tenant,
        name=name,
        scopes=wanted,
        allowed_models=models,
        allowed_networks=networks,
        expires_at=expires_at,
    )
    save_valid(key)
    record(by=by, action="key.created", target=key, after=_facts(key), tenant=tenant)
    announce("key", key.pk)
    return key, token


def _new_key(by: Actor, tenant: Tenant, **values: Any) -> tuple[ApiKey, str]:
    fresh = new_token()
    key = ApiKey(
        id=fresh.id,
        tenant=tenant,
        prefix=fresh.prefix,
        last_four=fresh.last_four,
        digest=digest_secret(fresh.secret, settings.KEY_PEPPER),
        created_by=by.name,
        creator_id=by.person_id,
        **values,
    )
    return key, fresh.token


def _facts(key: ApiKey) -> dict[str, Any]:
    names = ("name", "scopes", "allowed_models", "allowed_networks", "expires_at")
    return {name: getattr(key, name) for name in names}


@transaction.atomic
def roll_key(
    *, by: Actor, key: ApiKey, overlap: timedelta, expires_at: datetime | None = None
) -> tuple[ApiKey, str]:
    """A new key of the same name, scopes, models and networks; the old one works until `overlap` has passed.

    What limits the old one limits both together.

    Returns the new key and its token, shown once. Raises `Conflict` for a key that is revoked, expired or rolled
    already, `Invalid` for an overlap beyond `MAX_OVERLAP` or scopes above the actor's own: the new key answers
    to whoever rolled it.
    """
    require(by, Right.MANAGE_KEYS, key.tenant_id)
    tenant = lock_tenant(key.tenant)
    with tenant_scope(key.tenant_id):
        old = ApiKey.objects.select_for_update(of=("self",)).select_related("tenant").get(pk=key.pk)
    _check_roll(by, old, overlap, expires_at)
    _leave_room(tenant)
    now = timezone.now()
    values = _facts(old) | {"expires_at": expires_at, "first_id": old.limited_as}
    fresh, token = _new_key(by, tenant, **values)
    before = {"expires_at": old.expires_at}
    old.expires_at = min(now + overlap, old.expires_at or now + overlap)
    with tenant_scope(tenant.pk):
        # The old one leaves its name before the new one takes it; the link is checked at the end.
        ApiKey.objects.filter(pk=old.pk).update(replaced_by_id=fresh.pk, expires_at=old.expires_at)
    save_valid(fresh)
    after = {"expires_at": old.expires_at, "replaced_by": fresh.pk}
    record(by=by, action="key.rolled", target=old, before=before, after=after, tenant=tenant)
    record(
        by=by, action="key.created", target=fresh, after=_facts(fresh) | {"replaces": old.pk}, tenant=tenant
    )
    announce("key", old.pk)
    announce("key", fresh.pk)
    return fresh, token


def _check_roll(by: Actor, old: ApiKey, overlap: timedelta, expires_at: datetime | None) -> None:
    if old.state != "active":
        raise Conflict(f"The key is {old.state}; make a new one.")
    if old.replaced_by_id is not None:
        raise Conflict("The key was rolled already; it ends by itself.")
    if not timedelta(0) <= overlap <= MAX_OVERLAP:
        raise Invalid({"overlap": f"Between nothing and {MAX_OVERLAP.days} days."})
    wrong = _wrong_expiry(expires_at)
    if wrong:
        raise Invalid({"expires_at": wrong})
    _check_scopes_are_own(by, old.tenant, list(old.scopes))
    refuse_beyond_maker(by, old.tenant, old.scopes, old.allowed_models, old.allowed_networks, expires_at)


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


def _check(
    scopes: list[str], models: list[str] | None, networks: list[str] | None, expires_at: datetime | None
) -> None:
    errors = {
        "allowed_networks": _wrong_networks(networks),
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


def _wrong_networks(networks: list[str] | None) -> str:
    if networks is None:
        return ""
    if not networks:
        return "Name at least one network, or leave it out to allow every address."
    if len(networks) > MAX_NETWORKS:
        return f"At most {MAX_NETWORKS} networks."
    wrong = [network for network in networks if not _is_network(network)]
    return f"Not a network such as 192.0.2.0/24: {', '.join(wrong)[:200]}." if wrong else ""


def _is_network(text: str) -> bool:
    try:
        return "%" not in text and bool(ip_network(text))
    except ValueError:
        return False


def _wrong_expiry(expires_at: datetime | None) -> str:
    if expires_at is None:
        return ""
    if timezone.is_naive(expires_at):
        return "The expiry needs a time zone."
    return "" if expires_at > timezone.now() else "The expiry lies in the past."
