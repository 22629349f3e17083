"""Accounts. Sign-up is closed: operators make them; one's own second factor and password are allauth's pages."""

from __future__ import annotations

from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import transaction

from tenants.access import require
from tenants.actions.sessions import end_sessions
from tenants.actors import Actor
from tenants.audit import record
from tenants.changes import announce
from tenants.errors import Conflict, Invalid
from tenants.logins import refuse_borrowed_names
from tenants.lookalikes import refuse_lookalike
from tenants.models import User
from tenants.roles import PlatformRole, Right
from tenants.validation import save_valid


@transaction.atomic
def create_user(
    *, by: Actor, username: str, email: str = "", password: str | None = None, platform_role: str = ""
) -> User:
    """Without a password the account cannot sign in until one is set."""
    require(by, Right.MANAGE_USERS)
    refuse_borrowed_names(username, email)
    refuse_lookalike(username)
    user = User(username=username, email=email, platform_role=_known_role(platform_role))
    if password is None:
        user.set_unusable_password()
    else:
        _set_password(user, password)
    save_valid(user)
    after = {"username": username, "email": email, "platform_role": user.platform_role}
    record(by=by, action="user.created", target=user, after=after)
    return user


@transaction.atomic
def set_password(*, by: Actor, user: User, password: str) -> None:
    """An operator sets another's password; every session of theirs ends with it."""
    require(by, Right.MANAGE_USERS)
    _set_password(user, password)
    user.save(update_fields=["password"])
    record(by=by, action="user.password_set", target=user)
    end_sessions(by=by, user_id=user.pk)


@transaction.atomic
def change_platform_role(*, by: Actor, user: User, platform_role: str) -> User:
    """Raises `Conflict` for the last active operator."""
    require(by, Right.MANAGE_USERS)
    wanted = _known_role(platform_role)
    operators, fresh = _locked(user)
    old = fresh.platform_role
    if old == wanted:
        return fresh
    _keep_an_operator(fresh, operators)
    fresh.platform_role = wanted
    fresh.save(update_fields=["platform_role"])
    record(
        by=by,
        action="user.platform_role_changed",
        target=fresh,
        before={"platform_role": old},
        after={"platform_role": wanted.value},
    )
    announce("user", str(fresh.pk))
    return fresh


@transaction.atomic
def set_active(*, by: Actor, user: User, is_active: bool) -> User:
    """Switch an account off (its sessions end) or on again, when it forgets who it was at the single sign-on.

    Raises `Conflict` for the last active operator.
    """
    require(by, Right.MANAGE_USERS)
    operators, fresh = _locked(user)
    if fresh.is_active == is_active:
        return fresh
    if not is_active:
        _keep_an_operator(fresh, operators)
    fresh.is_active = is_active
    fresh.save(update_fields=["is_active"])
    action = "user.switched_on" if is_active else "user.switched_off"
    record(
        by=by,
        action=action,
        target=fresh,
        before={"is_active": not is_active},
        after={"is_active": is_active},
    )
    if is_active:
        SocialAccount.objects.filter(user_id=fresh.pk).delete()
    else:
        end_sessions(by=by, user_id=fresh.pk)
    return fresh


@transaction.atomic
def reset_second_factor(*, by: Actor, user: User) -> None:
    """For whoever lost telephone and recovery codes. Their sessions end. Raises `Conflict` when there is none."""
    require(by, Right.MANAGE_USERS)
    removed, _ = Authenticator.objects.filter(user_id=user.pk).delete()
    if not removed:
        raise Conflict("This account has no second factor.")
    record(by=by, action="user.mfa_reset", target=user)
    end_sessions(by=by, user_id=user.pk)


def _locked(user: User) -> tuple[list[User], User]:
    """All operators, locked in one order so that two of them cannot step down past each other, and the account."""
    operators = User.objects.select_for_update().filter(platform_role=PlatformRole.OPERATOR).order_by("pk")
    return list(operators), User.objects.select_for_update().get(pk=user.pk)


def _keep_an_operator(user: User, operators: list[User]) -> None:
    is_operator = user.platform_role == PlatformRole.OPERATOR
    if is_operator and not any(other.is_active and other.pk != user.pk for other in operators):
        raise Conflict("The platform keeps at least one operator.")


def _set_password(user: User, password: str) -> None:
    try:
        validate_password(password, user)
    except ValidationError as error:
        raise Invalid({"password": " ".join(error.messages)}) from error
    user.set_password(password)


def _known_role(role: str) -> PlatformRole:
    try:
        return PlatformRole(role)
    except ValueError:
        raise Invalid({"platform_role": f"“{role}” is not a platform role."}) from None
