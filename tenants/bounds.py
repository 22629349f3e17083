"""A key that makes keys: what it makes stays within its own bounds, so that a bound cannot be left by making another."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from ipaddress import IPv4Network, IPv6Network, ip_network

from tenants.actors import Actor
from tenants.errors import Invalid
from tenants.models import ApiKey, Tenant
from tenants.roles import rights_of_scopes
from tenants.scoping import tenant_scope


def refuse_beyond_maker(
    by: Actor,
    tenant: Tenant,
    scopes: Sequence[str],
    models: Sequence[str] | None,
    networks: Sequence[str] | None,
    expires_at: datetime | None,
) -> None:
    """Raises `Invalid` by field. People, and keys without bounds, make what they like.

    Models bind every key that is made. Networks and end bind those that manage: a key kept at one place may
    hand out keys for inference elsewhere, and none that could do the same there, or for longer.
    """
    if by.type != "api_key":
        return
    with tenant_scope(tenant.pk):
        maker = ApiKey.objects.get(pk=by.id)
    errors = {"allowed_models": _beyond_models(models, maker.allowed_models)}
    if rights_of_scopes(scopes):
        errors["allowed_networks"] = _beyond_networks(networks, maker.allowed_networks)
        errors["expires_at"] = _beyond_end(expires_at, maker.expires_at)
    said = {field: message for field, message in errors.items() if message}
    if said:
        raise Invalid(said)


def _beyond_models(wanted: Sequence[str] | None, own: Sequence[str] | None) -> str:
    if own is None or (wanted is not None and set(wanted) <= set(own)):
        return ""
    return f"Only models of the key that makes it: {', '.join(own)}."


def _beyond_networks(wanted: Sequence[str] | None, own: Sequence[str] | None) -> str:
    if own is None:
        return ""
    outer = [ip_network(each, strict=False) for each in own]
    if wanted is not None and all(_is_inside(ip_network(each, strict=False), outer) for each in wanted):
        return ""
    return f"A key that manages, made by a key, is bound to its networks: {', '.join(own)}."


def _is_inside(inner: IPv4Network | IPv6Network, outer: Sequence[IPv4Network | IPv6Network]) -> bool:
    for each in outer:
        if isinstance(inner, IPv4Network) and isinstance(each, IPv4Network) and inner.subnet_of(each):
            return True
        if isinstance(inner, IPv6Network) and isinstance(each, IPv6Network) and inner.subnet_of(each):
            return True
    return False


def _beyond_end(wanted: datetime | None, own: datetime | None) -> str:
    if own is None or (wanted is not None and wanted <= own):
        return ""
    return f"A key that manages, made by a key, ends with it at the latest: {own.isoformat()}."
