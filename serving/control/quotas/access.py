"""The gates to quotas: a tenant's people see what binds them."""

from __future__ import annotations

from django.db.models import QuerySet

from serving.control.quotas.models import Quota
from tenants.access import require
from tenants.actors import Actor
from tenants.errors import NotFound
from tenants.roles import Right
from tenants.scoping import all_tenants

_RELATED = ("tenant", "key", "model")


def visible_quotas() -> QuerySet[Quota]:
    """Of the tenants in the scope the code runs in. Raises `ScopeError` outside one."""
    return Quota.objects.select_related(*_RELATED)


def access_quota(actor: Actor, quota_id: str, *, to_change: bool = False) -> Quota:
    """Raises `NotFound` for one the actor does not see, `NotAllowed` for one they may not change."""
    with all_tenants("a gate looks the row up before it can know the tenant"):
        quota = visible_quotas().filter(pk=quota_id).first()
    if quota is None or not actor.has(Right.VIEW, quota.tenant_id):
        raise NotFound("quota")
    if to_change:
        require_change(actor, quota)
    return quota


def require_change(actor: Actor, quota: Quota) -> None:
    """Operators change every quota, a tenant's people those they set on their own keys."""
    if quota.key_id is not None and not quota.is_of_platform and not actor.has(Right.MANAGE_QUOTAS):
        require(actor, Right.MANAGE_KEYS, quota.tenant_id)
    else:
        require(actor, Right.MANAGE_QUOTAS)
