"""Which account a typed name means. User names and addresses are two kinds of names that must never be mixed up.

Members are added by their address, so nobody may be called like one that is not theirs.
"""

from __future__ import annotations

from django.db.models import Q

from tenants.errors import Invalid
from tenants.models import User


def find_account(login: str) -> User | None:
    """By user name or e-mail, whatever its case. What looks like an address means its owner first."""
    if not login:
        return None
    found = list(User.objects.filter(Q(username__iexact=login) | Q(email__iexact=login)).order_by("pk"))
    names = ("email", "username") if "@" in login else ("username", "email")
    wanted = _folded(login)
    return next((user for name in names for user in found if _folded(getattr(user, name)) == wanted), None)


def find_by_address(email: str) -> User | None:
    """The account whose address this is; other letters that only look alike in capitals are another address."""
    found = User.objects.filter(email__iexact=email) if email else User.objects.none()
    return next((user for user in found if _folded(user.email) == _folded(email)), None)


def is_same_address(one: str, other: str) -> bool:
    """Whether both are the same one and not empty, by the same rule."""
    return bool(one) and _folded(one) == _folded(other)


def refuse_borrowed_names(username: str, email: str) -> None:
    """Raises `Invalid` for a user name that is an address other than one's own, and the other way round."""
    if "@" in username and _folded(username) != _folded(email):
        raise Invalid({"username": "A user name with @ has to be the account's own e-mail address."})
    if email and _folded(username) != _folded(email) and User.objects.filter(username__iexact=email).exists():
        raise Invalid({"email": "Another account has this address as its user name."})


def _folded(text: str) -> str:
    """Without regard to case in ASCII only: PostgreSQL's UPPER makes an I of a dotless ı, and an S of ſ."""
    return "".join(c.lower() if c.isascii() else c for c in text)
