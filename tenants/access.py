"""The gates: the only way from an id to an object.

Each takes the actor and the right that is needed. What belongs to a tenant the actor does not see raises
`NotFound`, exactly like an id that never existed; what they see but may not do raises `NotAllowed`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from django.db.models import QuerySet

from tenants.actors import Actor
from tenants.errors import Invalid, NotAllowed, NotFound
from tenants.logins import find_account
from tenants.models import ApiKey, Membership, Tenant, User
from tenants.organisations import Organisation
from tenants.roles import Right
from tenants.scoping import all_tenants, tenant_scope

_GATE = "a gate looks the row up before it can know the tenant"


def require(actor: Actor, right: Right, tenant_id: str | None = None) -> None:
    """Raises `NotFound` for a tenant the actor does not see, `NotAllowed` when the right is missing.

    Without a tenant the right is asked on the platform.
    """
    if tenant_id is not None and not actor.can_see(tenant_id):
        raise NotFound("tenant")
    if not actor.has(right, tenant_id):
        raise NotAllowed(f"This needs the right “{right.value.replace('_', ' ')}”.", tenant_id)


def access_tenant(actor: Actor, tenant_id: str, right: Right = Right.VIEW) -> Tenant:
    tenant = Tenant.objects.filter(pk=tenant_id).first() if actor.can_see(tenant_id) else None
    if tenant is None:
        raise NotFound("tenant")
    require(actor, right, tenant.pk)
    return tenant


def access_tenant_by_slug(actor: Actor, slug: str, right: Right = Right.VIEW) -> Tenant:
    tenant = visible_tenants(actor).filter(slug=slug).first()
    if tenant is None:
        raise NotFound("tenant")
    require(actor, right, tenant.pk)
    return tenant


def access_key(actor: Actor, key_id: str, right: Right = Right.VIEW) -> ApiKey:
    with all_tenants(_GATE):
        key = ApiKey.objects.select_related("tenant").filter(pk=key_id).first()
    if key is None or not actor.can_see(key.tenant_id):
        raise NotFound("API key")
    require(actor, right, key.tenant_id)
    return key


def access_member(actor: Actor, membership_id: str, right: Right = Right.VIEW) -> Membership:
    with all_tenants(_GATE):
        member = Membership.objects.select_related("tenant", "user").filter(pk=membership_id).first()
    if member is None or not actor.can_see(member.tenant_id):
        raise NotFound("member")
    require(actor, right, member.tenant_id)
    return member


def access_account(actor: Actor, tenant_id: str, login: str) -> User:
    """The active account with this user name or e-mail, for someone who may add it to the tenant.

    Raises `Invalid` in the same words for one that is not there and for one the actor has never met: whoever
    could try names here would learn who has an account. Strangers are invited by their address.
    """
    require(actor, Right.MANAGE_MEMBERS, tenant_id)
    user = find_account(login)
    is_known = actor.sees_platform or _share_a_tenant(actor, user)
    if user is None or not user.is_active or not is_known:
        raise Invalid({"login": "No account that you know has this name. Invite them by their address."})
    return user


def _share_a_tenant(actor: Actor, user: User | None) -> bool:
    """Asked of the database whether there is such an account or not, so that the time tells nothing."""
    with all_tenants("who is met in one tenant may be added to another"):
        user_id = 0 if user is None else user.pk
        return Membership.objects.filter(user_id=user_id, tenant_id__in=actor.tenant_ids).exists()


def access_person(actor: Actor, login: str) -> User:
    """The active account with this user name or e-mail, for operators who make somebody an organisation's admin."""
    require(actor, Right.MANAGE_ORGANISATIONS)
    return _active_account(login)


def access_user(actor: Actor, user_id: int, right: Right = Right.VIEW_PLATFORM) -> User:
    """Any account; for whoever sees the platform, everybody else learns nothing."""
    user = User.objects.filter(pk=user_id).first() if actor.sees_platform else None
    if user is None:
        raise NotFound("account")
    require(actor, right)
    return user


def _active_account(login: str) -> User:
    user = find_account(login)
    if user is None or not user.is_active:
        raise NotFound("account")
    return user


def visible_organisations(actor: Actor) -> QuerySet[Organisation]:
    """Every one for operators and support, for others those they are an admin of."""
    rows = Organisation.objects.all()
    return rows if actor.sees_platform else rows.filter(pk__in=actor.organisations)


def access_organisation(actor: Actor, organisation_id: str, right: Right = Right.VIEW) -> Organisation:
    """Every right but viewing is asked on the platform."""
    row = visible_organisations(actor).filter(pk=organisation_id).first()
    if row is None:
        raise NotFound("organisation")
    if right is not Right.VIEW:
        require(actor, right)
    return row


def may_add_tenants(actor: Actor, organisation: Organisation) -> bool:
    """Its admins, and whoever may make tenants anywhere."""
    return organisation.pk in actor.organisations or actor.has(Right.MANAGE_TENANTS)


def visible_tenants(actor: Actor) -> QuerySet[Tenant]:
    """Every tenant for operators and support, one's own for members and keys, none for the rest."""
    if actor.sees_platform:
        return Tenant.objects.all()
    return Tenant.objects.filter(pk__in=list(actor.tenant_ids))


def scope_of(actor: Actor, tenant_id: str | None = None) -> AbstractContextManager[None]:
    """The scope in which the actor's requests run: one tenant, or all they may see.

    Raises `NotFound` for a tenant they do not see.
    """
    if tenant_id is not None:
        if not actor.can_see(tenant_id):
            raise NotFound("tenant")
        return tenant_scope(tenant_id)
    if actor.sees_platform:
        return all_tenants("an operator, or support, looks at the whole platform")
    return tenant_scope(actor.tenant_ids)
