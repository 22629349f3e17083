"""How people sign in: allauth with sign-up closed, by user name or e-mail."""

from __future__ import annotations

from typing import Any, cast

from allauth.account.adapter import DefaultAccountAdapter
from allauth.account.forms import ResetPasswordForm
from allauth.account.views import password_reset
from django.conf import settings
from django.contrib.auth.backends import ModelBackend
from django.http import Http404, HttpRequest
from django.http.response import HttpResponseBase

from tenants.logins import find_account
from tenants.models import User


class ClosedSignupAdapter(DefaultAccountAdapter):
    """Accounts are made by operators (`tenants.actions.users.create_user`), never by visitors."""

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False

    def _get_login_attempts_cache_key(self, request: HttpRequest, **credentials: Any) -> str:
        """Guesses are counted by account, whichever of its names is typed and whatever port the Host header says."""
        login = str(credentials.get("email") or credentials.get("username") or "")
        user = find_account(login)
        return f"account:{user.pk}" if user else f"login:{login.lower()}"


class SignInBackend(ModelBackend):
    """One password hash per attempt, whoever is named: the time of a refusal tells nobody who has an account."""

    def authenticate(
        self,
        request: HttpRequest | None,
        username: str | None = None,
        password: str | None = None,
        email: str | None = None,
        **others: Any,
    ) -> User | None:
        """allauth passes what was typed as `username`, and as `email` too when it looks like one."""
        login = username or email
        if not login or not password:
            return None
        user = find_account(login)
        if user is None:
            User().set_password(password)
            return None
        return user if user.check_password(password) and self.user_can_authenticate(user) else None


class ResetLetterForm(ResetPasswordForm):
    """A letter renews a password; it gives none to an account that signs in by the provider alone.

    Otherwise whoever is no longer let in there would make themselves another way in.
    """

    def clean_email(self) -> str:
        email: str = super().clean_email()
        found: list[User] = self.users  # type: ignore[has-type]
        self.users = [user for user in found if user.has_usable_password()]
        return email


def reset_password(request: HttpRequest) -> HttpResponseBase:
    """Only where letters reach people: elsewhere the link would lie in a log."""
    if not settings.SENDS_MAIL:
        raise Http404
    return cast(HttpResponseBase, password_reset(request))
