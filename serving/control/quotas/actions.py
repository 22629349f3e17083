"""Quotas are set, changed and lifted; every gateway follows within a second."""

from __future__ import annotations

from typing import Any

from django.db import transaction

from serving.control import publish
from serving.control.catalog.models import Model
from serving.control.quotas.access import require_change
from serving.control.quotas.models import Quota
from serving.control.quotas.pooling import check_guarantee
from tenants.actions.tenants import lock_tenant
from tenants.actors import Actor
from tenants.audit import Target, changed, record
from tenants.errors import Conflict, Invalid, NotFound
from tenants.models import ApiKey, Tenant
from tenants.roles import Right
from tenants.scoping import tenant_scope
from tenants.staleness import refuse_stale
from tenants.validation import refuse_unknown, save_valid

EDITABLE = ("limit", "burst", "guaranteed", "observe_only", "soft_percent")
MAX_QUOTAS = 100
"""Of one tenant: every gateway holds every quota."""


@transaction.atomic
def create_quota(
    *,
    by: Actor,
    tenant: Tenant,
    resource: str,
    limit: int,
    window: str = "",
    key: ApiKey | None = None,
    model: Model | None = None,
    burst: int | None = None,
    guaranteed: int | None = None,
    observe_only: bool = False,
    soft_percent: int | None = None,
) -> Quota:
    """`limit` in base units (see `Quota.limit`).

    A tenant's own admins may limit their keys, and not above what the tenant has. Raises `Invalid` by field,
    `Conflict` for a target that has one of this kind already or a tenant with `MAX_QUOTAS`.
    """
    is_of_platform = by.has(Right.MANAGE_QUOTAS)
    quota = Quota(
        tenant=tenant,
        key=key,
        model=model,
        resource=resource,
        window=window,
        limit=limit,
        burst=burst,
        guaranteed=guaranteed,
        observe_only=observe_only,
        soft_percent=soft_percent,
        is_of_platform=is_of_platform,
    )
    require_change(by, quota)
    lock_tenant(tenant)
    with tenant_scope(tenant.pk):
        _check(quota)
        if Quota.objects.count() >= MAX_QUOTAS:
            raise Conflict(f"A tenant has at most {MAX_QUOTAS} quotas.")
        save_valid(quota)
    after = {"target": quota.target_text, "resource": resource, "window": window, **facts_of(quota)}
    record(by=by, action="quota.created", target=_target(quota), after=after, tenant=tenant)
    publish.quota(quota.pk)
    return quota


@transaction.atomic
def update_quota(*, by: Actor, quota: Quota, seen: str = "", **values: Any) -> Quota:
    """Change any of `EDITABLE`; only what differs is written and audited.

    Raises as `create_quota`, and `Conflict` when `seen` (`facts_of` as the person saw it, marked) is out of date.
    """
    refuse_unknown(values, EDITABLE)
    with tenant_scope(quota.tenant_id):
        fresh = _locked(quota)
        require_change(by, fresh)
        refuse_stale(seen, facts_of(fresh))
        before, after = changed(facts_of(fresh), values)
        if not after:
            return fresh
        for name, value in after.items():
            setattr(fresh, name, value)
        _check(fresh)
        save_valid(fresh)
    record(
        by=by, action="quota.updated", target=_target(fresh), before=before, after=after, tenant=fresh.tenant
    )
    publish.quota(fresh.pk)
    return fresh


@transaction.atomic
def delete_quota(*, by: Actor, quota: Quota) -> None:
    with tenant_scope(quota.tenant_id):
        fresh = _locked(quota)
        require_change(by, fresh)
        target, before = _target(fresh), facts_of(fresh)
        fresh.delete()
    record(by=by, action="quota.deleted", target=target, before=before, tenant=quota.tenant)
    publish.quota(target.id)


def facts_of(quota: Quota) -> dict[str, Any]:
    return {name: getattr(quota, name) for name in EDITABLE}


def _check(quota: Quota) -> None:
    """What no constraint of the table can say."""
    if quota.key is not None and quota.key.tenant_id != quota.tenant_id:
        raise Invalid({"key": "This key is not one of the tenant's."})
    check_guarantee(quota)
    if quota.is_of_platform or not isinstance(quota.limit, int):
        return
    above = Quota.objects.filter(
        key=None, model=None, resource=quota.resource, window=quota.window, limit__lt=quota.limit
    ).first()
    if above is not None:
        raise Invalid({"limit": "This is more than the tenant itself has."})


def _locked(quota: Quota) -> Quota:
    """Raises `NotFound` when it is gone."""
    fresh = Quota.objects.select_for_update(of=("self",)).select_related("tenant", "key", "model")
    found = fresh.filter(pk=quota.pk).first()
    if found is None:
        raise NotFound("quota")
    return found


def _target(quota: Quota) -> Target:
    return Target("quota", quota.pk, str(quota)[:200])
