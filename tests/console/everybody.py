"""Everybody there is to a tenant, and what each of them gets from an address that asks for a right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tenants.actions.members import add_member, remove_member
from tenants.actions.organisations import add_organisation_admin, create_organisation, move_tenant
from tenants.actions.users import create_user
from tenants.actors import Actor
from tenants.roles import Right, Role
from tests.tenants.conftest import SYSTEM, Cast

INSIDE = ("owner", "admin", "developer", "viewer", "auditor", "organisation-admin", "support", "operator")
OUTSIDE = ("stranger", "other-organisation-admin", "removed", "nobody")
"""The stranger owns another tenant; `removed` was an admin and still has the session of that time."""
EVERYBODY = (*INSIDE, *OUTSIDE, "anonymous")


def invite_everybody(cast: Cast) -> Callable[[], None]:
    """Adds who is missing to the cast. What is returned removes `removed`: sign them in before."""
    for who, tenant in (("organisation-admin", cast.tenant), ("other-organisation-admin", cast.other)):
        cast.users[who] = create_user(by=SYSTEM, username=who)
        organisation = create_organisation(by=SYSTEM, name=f"group of {tenant.slug}")
        add_organisation_admin(by=SYSTEM, organisation=organisation, user=cast.users[who])
        move_tenant(by=SYSTEM, tenant=tenant, organisation=organisation)
    cast.users["removed"] = create_user(by=SYSTEM, username="removed")
    member = add_member(by=SYSTEM, tenant=cast.tenant, user=cast.users["removed"], role=Role.ADMIN)
    return lambda: remove_member(by=SYSTEM, membership=member)


@dataclass(frozen=True, slots=True)
class Asks:
    """Which right an address asks for, where, and whom it does not exist for at all."""

    right: Right | None = None
    """None: whoever is signed in."""
    is_tenants: bool = False
    """The right is asked in the first tenant, else on the platform."""
    is_any: bool = False
    """The right is enough in any tenant of one's own."""
    is_asked_first: bool = False
    """Who holds the right in no tenant at all is refused before anything is looked up."""
    unseen: int = 404
    """What is said of a tenant one does not see; 422 where a body names it."""
    seen_by: str = "everybody"
    """`everybody`, those who see the `tenant`, its `organisation`, its audit `trail` or the `platform`; `holders` of the right."""
    is_organisers: bool = False
    """Who looks after an organisation needs no right for it."""

    def refusal(self, actor: Actor, tenant_id: str) -> int | None:
        """The status an actor is refused with; None for whom it answers."""
        holds = self.right is None or self._holds(self.right, actor, tenant_id)
        exists = {
            "everybody": True,
            "tenant": actor.can_see(tenant_id),
            "platform": actor.sees_platform,
            "organisation": actor.sees_platform or self._organises(actor, tenant_id),
            "trail": Right.VIEW_AUDIT in actor.rights_in(tenant_id),
            "holders": holds,
        }[self.seen_by]
        if actor.is_anonymous:
            return 401
        if self.is_asked_first and not any(self.right in actor.rights_in(each) for each in actor.tenant_ids):
            return None if holds else 403
        if not exists:
            return self.unseen
        return None if holds else 403

    def _organises(self, actor: Actor, tenant_id: str) -> bool:
        return bool(actor.organisations) and (self.is_any or actor.can_see(tenant_id))

    def _holds(self, right: Right, actor: Actor, tenant_id: str) -> bool:
        if self.is_organisers and self._organises(actor, tenant_id):
            return True
        own = [tenant_id] if self.is_tenants else list(actor.tenant_ids) if self.is_any else []
        held = [actor.rights_in(each) for each in own] + ([] if self.is_tenants else [actor.platform_rights])
        return any(right in rights for rights in held)


def anyone() -> Asks:
    return Asks()


def somewhere(right: Right) -> Asks:
    """A list that shows what one may see: of every tenant in which one holds the right."""
    return Asks(right, is_any=True)


def in_tenant(right: Right, hidden: bool = False) -> Asks:
    return Asks(right, is_tenants=True, seen_by="holders" if hidden else "tenant")


def shared(right: Right) -> Asks:
    """What the platform owns and the tenant may use; to change it takes a right on the platform."""
    return in_tenant(right) if right is Right.VIEW else Asks(right, seen_by="tenant")


def on_platform(right: Right, hidden: bool = False) -> Asks:
    return Asks(right, seen_by="platform" if hidden else "everybody")


def of_organisation(right: Right | None = None, is_organisers: bool = False) -> Asks:
    """What an organisation is and has; who looks after it reads that, and may do some of it."""
    return Asks(right, seen_by="organisation", is_organisers=is_organisers)


def of_trail(right: Right) -> Asks:
    """What is set up for a tenant's audit trail; who may not read that sees nothing of it."""
    return Asks(right, is_tenants=True, seen_by="trail")
