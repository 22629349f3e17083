"""Organisations, who looks after them, and which tenants are theirs: the operators' to say.

What its admins may do by themselves is to make tenants in it (`tenants.actions.tenants.create_tenant`), and
what every admin of a tenant may do in each of those.
"""

from __future__ import annotations

from django.db import transaction

from tenants.access import require
from tenants.actions.tenants import lock_tenant
from tenants.actors import Actor
from tenants.audit import Target, changed, record
from tenants.changes import announce
from tenants.errors import NotFound
from tenants.models import Tenant, User
from tenants.organisations import Organisation, OrganisationAdmin
from tenants.roles import Right
from tenants.staleness import refuse_stale
from tenants.validation import save_valid


@transaction.atomic
def create_organisation(*, by: Actor, name: str, max_tenants: int = 10) -> Organisation:
    require(by, Right.MANAGE_ORGANISATIONS)
    row = Organisation(name=name, max_tenants=max_tenants)
    save_valid(row)
    record(by=by, action="organisation.created", target=row, after=row.facts())
    return row


@transaction.atomic
def update_organisation(
    *, by: Actor, organisation: Organisation, name: str, max_tenants: int, seen: str = ""
) -> Organisation:
    """A maximum below what it has takes nothing away; it only lets nothing be added."""
    require(by, Right.MANAGE_ORGANISATIONS)
    row = Organisation.objects.select_for_update().get(pk=organisation.pk)
    refuse_stale(seen, row.facts())
    before, after = changed(row.facts(), {"name": name, "max_tenants": max_tenants})
    if not after:
        return row
    row.name, row.max_tenants = name, max_tenants
    save_valid(row)
    record(by=by, action="organisation.updated", target=row, before=before, after=after)
    return row


@transaction.atomic
def add_organisation_admin(*, by: Actor, organisation: Organisation, user: User) -> OrganisationAdmin:
    require(by, Right.MANAGE_ORGANISATIONS)
    row = OrganisationAdmin(organisation=organisation, user=user)
    save_valid(row)
    record(by=by, action="organisation.admin_added", target=_target(row), after=_facts(row))
    announce("user", str(user.pk))
    return row


@transaction.atomic
def remove_organisation_admin(*, by: Actor, admin: OrganisationAdmin) -> None:
    """They lose what they had through it at once; what a tenant gave them by itself stays."""
    require(by, Right.MANAGE_ORGANISATIONS)
    target, before = _target(admin), _facts(admin)
    deleted, _ = OrganisationAdmin.objects.filter(pk=admin.pk).delete()
    if not deleted:
        raise NotFound("organisation admin")
    record(by=by, action="organisation.admin_removed", target=target, before=before)
    announce("user", str(admin.user_id))


@transaction.atomic
def move_tenant(*, by: Actor, tenant: Tenant, organisation: Organisation | None) -> Tenant:
    """Into an organisation, or out of any. The admins of both notice at once; operators may exceed the maximum."""
    require(by, Right.MANAGE_ORGANISATIONS)
    fresh = lock_tenant(tenant)
    old = fresh.organisation
    if old == organisation:
        return fresh
    fresh.organisation = organisation
    save_valid(fresh)
    record(
        by=by,
        action="tenant.moved",
        target=fresh,
        before={"organisation": old.name if old else None},
        after={"organisation": organisation.name if organisation else None},
        tenant=fresh,
    )
    told = OrganisationAdmin.objects.filter(organisation__in=[o for o in (old, organisation) if o])
    for user_id in told.values_list("user_id", flat=True).distinct():
        announce("user", str(user_id))
    return fresh


def _target(row: OrganisationAdmin) -> Target:
    return Target("organisation", row.organisation_id, row.organisation.name)


def _facts(row: OrganisationAdmin) -> dict[str, str]:
    return {"admin": row.user.get_username()}
