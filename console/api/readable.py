"""Which tenants' rows a list shows: those in which the actor holds the right, which seeing alone is not."""

from __future__ import annotations

from tenants.actors import Actor
from tenants.roles import Right


def readable(actor: Actor, right: Right) -> list[str] | None:
    """Tenant ids; None for every tenant. A key that may only infer reads no list."""
    if actor.has(right):
        return None
    return sorted(tenant_id for tenant_id in actor.tenant_ids if actor.has(right, tenant_id))
