"""Who belongs to a tenant, and as what. A tenant that has an owner keeps one."""

from __future__ import annotations

from django.db import transaction

from tenants.access import require
from tenants.actions.tenants import lock_tenant
from tenants.actors import Actor
from tenants.audit import Target, record
from tenants.changes import announce
from tenants.errors import Conflict, Invalid, NotAllowed, NotFound
from tenants.models import Membership, Tenant, User
from tenants.roles import Right, Role, can_grant
from tenants.scoping import tenant_scope
from tenants.validation import save_valid


@transaction.atomic
def add_member(*, by: Actor, tenant: Tenant, user: User, role: str) -> Membership:
    """Raises `NotAllowed` for a role above the actor's own."""
    wanted = _known_role(role)
    require(by, Right.MANAGE_MEMBERS, tenant.pk)
    _require_grant(by, tenant, wanted)
    member = Membership(tenant=tenant, user=user, role=wanted)
    save_valid(member)
    record(
        by=by,
        action="member.added",
        target=_target(member),
        after={"user": user.get_username(), "role": wanted.value},
        tenant=tenant,
    )
    return member


@transaction.atomic
def change_role(*, by: Actor, membership: Membership, role: str) -> Membership:
    """Raises `NotAllowed` when the old or the new role is above the actor's own, `Conflict` for the last owner."""
    wanted = _known_role(role)
    member = _held(by, membership)
    old = Role(member.role)
    if old is wanted:
        return member
    _require_grant(by, member.tenant, wanted)
    _keep_an_owner(member)
    member.role = wanted
    save_valid(member)
    record(
        by=by,
        action="member.role_changed",
        target=_target(member),
        before={"role": old.value},
        after={"role": wanted.value},
        tenant=member.tenant,
    )
    announce("user", str(member.user_id))
    return member


@transaction.atomic
def remove_member(*, by: Actor, membership: Membership) -> None:
    """Raises `NotAllowed` for a member above the actor, `Conflict` for the last owner."""
    member = _held(by, membership)
    _keep_an_owner(member)
    target, role = _target(member), member.role
    with tenant_scope(member.tenant_id):
        member.delete()
    record(by=by, action="member.removed", target=target, before={"role": role}, tenant=member.tenant)
    announce("user", str(member.user_id))


def _held(by: Actor, membership: Membership) -> Membership:
    """The membership as it is now, behind the tenant's lock: two removals of the last two owners queue here."""
    require(by, Right.MANAGE_MEMBERS, membership.tenant_id)
    lock_tenant(membership.tenant)
    with tenant_scope(membership.tenant_id):
        member = Membership.objects.select_related("tenant", "user").filter(pk=membership.pk).first()
    if member is None:
        raise NotFound("member")
    _require_grant(by, member.tenant, Role(member.role))
    return member


def _require_grant(by: Actor, tenant: Tenant, role: Role) -> None:
    if not can_grant(by.rights_in(tenant.pk), role):
        raise NotAllowed(f"The role “{role.value}” is above your own.", tenant.pk)


def _keep_an_owner(member: Membership) -> None:
    if member.role != Role.OWNER:
        return
    with tenant_scope(member.tenant_id):
        others = Membership.objects.filter(role=Role.OWNER).exclude(pk=member.pk)
        if not others.exists():
            raise Conflict("A tenant keeps at least one owner: make somebody else an owner first.")


def _known_role(role: str) -> Role:
    try:
        return Role(role)
    except ValueError:
        raise Invalid({"role": f"“{role}” is not a role."}) from None


def _target(member: Membership) -> Target:
    return Target("member", str(member.pk), member.user.get_username())
