"""Accounts. Sign-up is closed: operators make them; MFA and password changes are allauth's pages."""

from __future__ import annotations

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import transaction

from tenants.access import require
from tenants.actors import Actor
from tenants.audit import record
from tenants.errors import Conflict, Invalid
from tenants.models import User
from tenants.roles import PlatformRole, Right
from tenants.validation import save_valid


@transaction.atomic
def create_user(
    *, by: Actor, username: str, email: str = "", password: str | None = None, platform_role: str = ""
) -> User:
    """Without a password the account cannot sign in until one is set."""
    require(by, Right.MANAGE_USERS)
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


@transaction.atomic
def change_platform_role(*, by: Actor, user: User, platform_role: str) -> User:
    """Raises `Conflict` for the last active operator."""
    require(by, Right.MANAGE_USERS)
    wanted = _known_role(platform_role)
    # All operators are locked, in one order, so that two of them cannot step down past each other.
    operators = list(
        User.objects.select_for_update().filter(platform_role=PlatformRole.OPERATOR).order_by("pk")
    )
    fresh = User.objects.select_for_update().get(pk=user.pk)
    old = fresh.platform_role
    if old == wanted:
        return fresh
    if old == PlatformRole.OPERATOR and not any(o.is_active and o.pk != fresh.pk for o in operators):
        raise Conflict("The platform keeps at least one operator.")
    fresh.platform_role = wanted
    fresh.save(update_fields=["platform_role"])
    record(
        by=by,
        action="user.platform_role_changed",
        target=fresh,
        before={"platform_role": old},
        after={"platform_role": wanted.value},
    )
    return fresh


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
