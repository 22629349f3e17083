"""Tenants come, change, pause and resume; they are never deleted."""

from __future__ import annotations

from typing import Any

from django.db import transaction

from tenants.access import may_add_tenants, require
from tenants.actors import Actor
from tenants.audit import changed, record
from tenants.changes import announce
from tenants.errors import Conflict, Invalid, NotAllowed
from tenants.models import EDITABLE, RESERVED_SLUGS, SET_BY_OPERATORS, Tenant
from tenants.organisations import Organisation
from tenants.roles import Right
from tenants.staleness import refuse_stale
from tenants.validation import refuse_unknown, save_valid
from tenants.zones import UTC_NAME


@transaction.atomic
def create_tenant(
    *,
    by: Actor,
    slug: str,
    name: str,
    max_concurrency: int = 1024,
    requests_per_s: float | None = None,
    burst: int | None = None,
    time_zone: str = UTC_NAME,
    organisation: Organisation | None = None,
) -> Tenant:
    """An operator's, or in their own organisation, with the usual limits and within its maximum, its admin's."""
    if organisation is None or (max_concurrency, requests_per_s, burst) != (1024, None, None):
        require(by, Right.MANAGE_TENANTS)
    if organisation is not None:
        _leave_room(by, organisation)
    if slug in RESERVED_SLUGS:
        raise Invalid({"slug": f"“{slug}” is reserved."})
    tenant = Tenant(
        slug=slug,
        name=name,
        max_concurrency=max_concurrency,
        requests_per_s=requests_per_s,
        burst=burst,
        time_zone=time_zone,
        usage_zone=time_zone,
        organisation=organisation,
    )
    save_valid(tenant)
    after = {"slug": slug, **tenant.facts(), **({"organisation": organisation.name} if organisation else {})}
    record(by=by, action="tenant.created", target=tenant, after=after, tenant=tenant)
    announce("tenant", tenant.pk)
    return tenant


@transaction.atomic
def update_tenant(*, by: Actor, tenant: Tenant, seen: str = "", **values: Any) -> Tenant:
    """Change `name` (its owner or admin), or what `SET_BY_OPERATORS` names (operators).

    Only what differs is written and audited; nothing different, nothing written. Raises `Conflict` when `seen`
    (the mark of the tenant's facts as the person saw them) is out of date.
    """
    require(by, Right.EDIT_TENANT, tenant.pk)
    refuse_unknown(values, EDITABLE)
    fresh = lock_tenant(tenant)
    refuse_stale(seen, fresh.facts())
    before, after = changed(fresh.facts(), values)
    if not after:
        return fresh
    if any(name in SET_BY_OPERATORS for name in after):
        require(by, Right.MANAGE_TENANTS, fresh.pk)
    for name, value in after.items():
        setattr(fresh, name, value)
    save_valid(fresh)
    record(by=by, action="tenant.updated", target=fresh, before=before, after=after, tenant=fresh)
    announce("tenant", fresh.pk)
    return fresh


@transaction.atomic
def suspend_tenant(*, by: Actor, tenant: Tenant, reason: str = "") -> Tenant:
    """Every request of the tenant is refused until it is resumed; its people still see their pages."""
    return _set_active(by, tenant, is_active=False, reason=reason)


@transaction.atomic
def resume_tenant(*, by: Actor, tenant: Tenant) -> Tenant:
    return _set_active(by, tenant, is_active=True, reason="")


def lock_tenant(tenant: Tenant) -> Tenant:
    """The tenant as it is now, held until the transaction ends, so that rules over its rows hold too.

    FOR NO KEY UPDATE: rows that merely refer to the tenant can still be inserted meanwhile.
    """
    return Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)


def _set_active(by: Actor, tenant: Tenant, *, is_active: bool, reason: str) -> Tenant:
    require(by, Right.MANAGE_TENANTS, tenant.pk)
    fresh = lock_tenant(tenant)
    if fresh.is_active == is_active:
        raise Conflict(f"The tenant is {'active' if is_active else 'suspended'} already.")
    fresh.is_active, fresh.suspended_reason = is_active, reason
    save_valid(fresh)
    record(
        by=by,
        action="tenant.resumed" if is_active else "tenant.suspended",
        target=fresh,
        before={"is_active": not is_active},
        after={"is_active": is_active},
        tenant=fresh,
        reason=reason,
    )
    announce("tenant", fresh.pk)
    return fresh


def _leave_room(by: Actor, organisation: Organisation) -> None:
    """Behind the organisation's lock: of two tenants at once only one is the last."""
    if not may_add_tenants(by, organisation):
        raise NotAllowed("Only an admin of this organisation, or an operator, adds tenants to it.")
    row = Organisation.objects.select_for_update().get(pk=organisation.pk)
    if row.tenants.count() >= row.max_tenants:
        raise Conflict(f"{row.name} has its {row.max_tenants} tenants. An operator may raise the maximum.")
