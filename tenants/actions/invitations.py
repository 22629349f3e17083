"""People are invited to a tenant by a link: single use, for a week, for one address, never above the inviter."""

from __future__ import annotations

from datetime import timedelta

from django.db import transaction
from django.utils import timezone

from tenants.access import require
from tenants.actions.members import add_member
from tenants.actions.tenants import lock_tenant
from tenants.actions.users import create_user
from tenants.actors import Actor
from tenants.audit import Target, record
from tenants.errors import Conflict, Invalid, NotAllowed, NotFound
from tenants.invitations import new_secret
from tenants.logins import is_same_address
from tenants.models import AuditEvent, Membership, Tenant, User
from tenants.people import Invitation
from tenants.roles import Right, Role, can_grant
from tenants.scoping import tenant_scope
from tenants.validation import save_valid

VALID_FOR = timedelta(days=7)
MAX_OPEN = 100
"""Invitations of one tenant that were neither accepted nor withdrawn."""
MAX_LETTERS = 5
"""To one address from one tenant within `LETTERS_SPAN`: nobody's letterbox is filled from here."""
LETTERS_SPAN = timedelta(hours=1)


@transaction.atomic
def invite(
    *, by: Actor, tenant: Tenant, email: str, role: str, by_mail: bool = False
) -> tuple[Invitation, str]:
    """Returns the invitation and the secret of its link, which exists nowhere else.

    `by_mail` says that the link goes to the address and nowhere else. Raises `NotAllowed` for a role above
    the actor's own, `Conflict` for too many open ones.
    """
    require(by, Right.MANAGE_MEMBERS, tenant.pk)
    if role not in [known.value for known in Role]:
        raise Invalid({"role": f"“{role}” is not a role."})
    if not can_grant(by.rights_in(tenant.pk), Role(role)):
        raise NotAllowed(f"The role “{role}” is above your own.", tenant.pk)
    _leave_room(tenant)
    _leave_in_peace(tenant, email.strip())
    secret, digest = new_secret()
    row = Invitation(
        tenant=tenant,
        email=email.strip(),
        role=role,
        digest=digest,
        proves_address=_proves(by, by_mail),
        inviter_id=by.person_id,
        inviter_name=by.name,
        expires_at=timezone.now() + VALID_FOR,
    )
    save_valid(row)
    after = {"email": row.email, "role": role, "expires_at": row.expires_at, "by_mail": by_mail}
    record(by=by, action="invitation.sent", target=_target(row), after=after, tenant=tenant)
    return row, secret


@transaction.atomic
def renew_invitation(*, by: Actor, invitation: Invitation, by_mail: bool = False) -> tuple[Invitation, str]:
    """A new link for another week, from whoever sends it again; the old one stops working.

    Raises `Conflict` when the address had `MAX_LETTERS` within the hour.
    """
    require(by, Right.MANAGE_MEMBERS, invitation.tenant_id)
    row = _held(invitation)
    if not can_grant(by.rights_in(row.tenant_id), Role(row.role)):
        raise NotAllowed(f"The role “{row.role}” is above your own.", row.tenant_id)
    _leave_in_peace(row.tenant, row.email)
    secret, row.digest = new_secret()
    row.proves_address = _proves(by, by_mail)
    row.inviter_id, row.inviter_name = by.person_id, by.name
    row.expires_at = timezone.now() + VALID_FOR
    save_valid(row)
    after = {"expires_at": row.expires_at, "by_mail": by_mail}
    record(by=by, action="invitation.sent_again", target=_target(row), after=after, tenant=row.tenant)
    return row, secret


@transaction.atomic
def withdraw_invitation(*, by: Actor, invitation: Invitation) -> None:
    require(by, Right.MANAGE_MEMBERS, invitation.tenant_id)
    row = _held(invitation)
    row.withdrawn_at = timezone.now()
    save_valid(row)
    record(by=by, action="invitation.withdrawn", target=_target(row), tenant=row.tenant)


@transaction.atomic
def accept_invitation(*, by: Actor, invitation: Invitation) -> Membership:
    """By a person with an account. Raises `NotAllowed` for another address, `Conflict` for what has become void."""
    user = User.objects.filter(pk=by.id).first() if by.type == "user" else None
    if user is None or not is_same_address(user.email, invitation.email):
        raise NotAllowed("This invitation is for another address.")
    return _join(by, _held(invitation), user)


@transaction.atomic
def join_as_new_person(*, by: Actor, invitation: Invitation, username: str, password: str) -> User:
    """By whoever holds the link, who gets the account of its address.

    Raises `NotAllowed` where holding the link does not show that the address is theirs: others add members by
    their address, so nobody may pick one.
    """
    row = _held(invitation)
    if not row.proves_address:
        raise NotAllowed("This link works for people with an account. Ask an operator to make you one.")
    maker = Actor.system("invitation")
    user = create_user(by=maker, username=username, email=row.email, password=password)
    _join(Actor.of_user(user), row, user)
    return user


def _join(by: Actor, row: Invitation, user: User) -> Membership:
    """As the inviter, with the rights they have now: who may not add a member any more has invited nobody."""
    inviter = Actor.of_user(row.inviter) if row.inviter else Actor.anonymous()
    try:
        with tenant_scope(row.tenant_id):
            member = add_member(by=inviter, tenant=row.tenant, user=user, role=row.role)
    except (NotAllowed, NotFound):
        raise Conflict("Whoever sent this invitation may not do so any more. Ask for a new one.") from None
    row.accepted_at = timezone.now()
    save_valid(row)
    record(by=by, action="invitation.accepted", target=_target(row), tenant=row.tenant)
    return member


def _held(invitation: Invitation) -> Invitation:
    """The invitation as it is now, locked: of two that use or withdraw it at once, one does."""
    with tenant_scope(invitation.tenant_id):
        rows = Invitation.objects.select_for_update(of=("self",)).select_related("tenant", "inviter")
        row = rows.filter(pk=invitation.pk, accepted_at=None, withdrawn_at=None).first()
    if row is None:
        raise Conflict("The invitation was used or withdrawn meanwhile.")
    return row


def _leave_room(tenant: Tenant) -> None:
    lock_tenant(tenant)
    with tenant_scope(tenant.pk):
        is_full = Invitation.objects.filter(accepted_at=None, withdrawn_at=None).count() >= MAX_OPEN
    if is_full:
        raise Conflict(f"The tenant has {MAX_OPEN} open invitations. Withdraw those that nobody will accept.")


def _leave_in_peace(tenant: Tenant, email: str) -> None:
    """The trail remembers what was sent, also by invitations that were withdrawn since."""
    with tenant_scope(tenant.pk):
        sent = AuditEvent.objects.filter(
            tenant_id=tenant.pk,
            action__in=("invitation.sent", "invitation.sent_again"),
            at__gt=timezone.now() - LETTERS_SPAN,
            target_name__iexact=email,
        ).count()
    if sent >= MAX_LETTERS:
        raise Conflict(
            f"This address was invited {sent} times within an hour. Wait before you send it again."
        )


def _proves(by: Actor, by_mail: bool) -> bool:
    return by_mail or by.has(Right.MANAGE_USERS)


def _target(row: Invitation) -> Target:
    return Target("invitation", row.pk, row.email)
