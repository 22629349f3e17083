"""How people sign in: allauth with sign-up closed, by user name or e-mail."""

from __future__ import annotations

from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from django.contrib.auth.backends import ModelBackend
from django.http import HttpRequest

from tenants.models import User


class ClosedSignupAdapter(DefaultAccountAdapter):
    """Accounts are made by operators (`tenants.actions.users.create_user`), never by visitors."""

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False

    def _get_login_attempts_cache_key(self, request: HttpRequest, **credentials: Any) -> str:
        """Guesses are counted by account, whichever of its names is typed and whatever port the Host header says."""
        login = str(credentials.get("email") or credentials.get("username") or "")
        user = _account(login)
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
        user = _account(login)
        if user is None:
            User().set_password(password)
            return None
        return user if user.check_password(password) and self.user_can_authenticate(user) else None


def _account(login: str) -> User | None:
    named = User.objects.filter(username__iexact=login).first()
    return named or User.objects.filter(email__iexact=login).first()
