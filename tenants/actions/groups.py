"""What the groups of the single sign-on give and take, again at each sign-in. What people gave stays."""

from __future__ import annotations

from collections.abc import Mapping

from django.db import transaction

from tenants.access import require
from tenants.actions.members import add_member, change_role, remove_member
from tenants.actions.users import change_platform_role
from tenants.actors import Actor
from tenants.errors import Conflict
from tenants.groups import Granted
from tenants.models import Membership, Tenant, User
from tenants.roles import PlatformRole, Right, Role
from tenants.scoping import all_tenants


@transaction.atomic
def apply_groups(*, by: Actor, user: User, granted: Granted) -> None:
    """Only roles that groups gave before are changed or taken; the last owner and the last operator stay.

    A tenant of the mapping that does not exist is passed over.
    """
    require(by, Right.MANAGE_USERS)
    fresh = User.objects.select_for_update().get(pk=user.pk)
    _apply_platform(by, fresh, granted.platform_role)
    with all_tenants("groups give roles in every tenant they name"):
        held = list(Membership.objects.select_related("tenant", "user").filter(user=fresh))
        _take(by, [m for m in held if m.by_group], granted.roles)
        _give(by, fresh, {m.tenant.slug: m for m in held}, granted.roles)


def _apply_platform(by: Actor, user: User, role: PlatformRole) -> None:
    if (user.platform_role and not user.platform_role_by_group) or user.platform_role == role:
        return
    try:
        with transaction.atomic():
            change_platform_role(by=by, user=user, platform_role=role)
    except Conflict:
        return
    User.objects.filter(pk=user.pk).update(platform_role_by_group=bool(role))


def _take(by: Actor, given: list[Membership], roles: Mapping[str, Role]) -> None:
    for member in given:
        wanted = roles.get(member.tenant.slug)
        try:
            with transaction.atomic():
                if wanted is None:
                    remove_member(by=by, membership=member)
                else:
                    change_role(by=by, membership=member, role=wanted)
        except Conflict:
            continue


def _give(by: Actor, user: User, held: Mapping[str, Membership], roles: Mapping[str, Role]) -> None:
    for tenant in Tenant.objects.filter(slug__in=roles.keys() - held.keys()).order_by("slug"):
        member = add_member(by=by, tenant=tenant, user=user, role=roles[tenant.slug])
        Membership.objects.filter(pk=member.pk).update(by_group=True)
