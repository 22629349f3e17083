"""How people sign in: allauth with sign-up closed."""

from __future__ import annotations

from allauth.account.adapter import DefaultAccountAdapter
from django.http import HttpRequest


class ClosedSignupAdapter(DefaultAccountAdapter):
    """Accounts are made by operators (`tenants.actions.users.create_user`), never by visitors."""

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False
