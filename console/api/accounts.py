"""Accounts of people. Passwords and second factors never pass here: people set their own on the console's pages."""

from __future__ import annotations

from typing import Any

from django.urls import reverse
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.again import ask_who_it_is
from console.api.fields import Body, Document, Flag, Moment, Text
from console.api.paging import NUMBERED
from console.api.schema import Page, changed, listed, made, shown
from console.api.views import ApiView
from tenants.access import access_user, require
from tenants.actions.users import change_platform_role, create_user, set_active
from tenants.errors import NotFound
from tenants.models import User
from tenants.roles import PlatformRole, Right

ROLES = [role.value for role in PlatformRole]
MAX_ID_CHARS = 18


class AccountDocument(Document):
    moving = ("last_login",)

    id = serializers.CharField(source="pk")
    username = serializers.CharField()
    email = serializers.CharField()
    platform_role = serializers.ChoiceField(choices=ROLES, help_text="Empty for none.")
    is_active = serializers.BooleanField()
    last_login = Moment(allow_null=True)
    created_at = Moment(source="date_joined")


class AccountChange(Body):
    platform_role = serializers.ChoiceField(choices=ROLES, required=False)
    is_active = Flag(required=False)


class AccountBody(Body):
    username = Text(max_length=150)
    email = serializers.EmailField(max_length=254, required=False)
    platform_role = serializers.ChoiceField(choices=ROLES, default="")


class AccountQuery(Page):
    username = serializers.CharField(required=False, max_length=150)


class Accounts(ApiView):
    """`/accounts`"""

    @listed("list_accounts", AccountDocument, AccountQuery)
    def get(self, request: Request) -> Response:
        """Everybody who can sign in, newest first."""
        require(self.actor, Right.VIEW_PLATFORM)
        rows = User.objects.all()
        if "username" in self.asked:
            rows = rows.filter(username__iexact=self.asked["username"])
        return self.rows(rows, AccountDocument, NUMBERED)

    @made("create_account", AccountBody, AccountDocument)
    def post(self, request: Request) -> Response:
        """Make an account without a password: it signs in by single sign-on, or once a password was set."""
        require(self.actor, Right.MANAGE_USERS)
        ask_who_it_is(request._request)
        values = self.read(AccountBody)
        return self.make(lambda: create_user(by=self.actor, **values), AccountDocument, address_of)


class OneAccount(ApiView):
    """`/accounts/{id}`"""

    @shown("get_account", AccountDocument)
    def get(self, request: Request, account_id: str) -> Response:
        """One account."""
        return self.one(self._account(account_id, Right.VIEW_PLATFORM), AccountDocument)

    @changed("change_account", AccountChange, AccountDocument)
    def patch(self, request: Request, account_id: str) -> Response:
        """Give a role on the platform or take it; switch an account off, which ends its sessions, or on."""
        self._account(account_id, Right.MANAGE_USERS)
        ask_who_it_is(request._request)
        values = self.read(AccountChange)

        def act(user: User) -> Any:
            if "platform_role" in values:
                change_platform_role(by=self.actor, user=user, platform_role=values["platform_role"])
            if "is_active" in values:
                set_active(by=self.actor, user=user, is_active=values["is_active"])

        return self.change(lambda: self._account(account_id, Right.MANAGE_USERS), act, AccountDocument)

    def hold(self, row: User) -> None:
        """The actions lock all operators, in one order, before the account: nothing here may come between."""
        list(User.objects.select_for_update().filter(platform_role=PlatformRole.OPERATOR).order_by("pk"))
        User.objects.select_for_update().get(pk=row.pk)

    def _account(self, account_id: str, right: Right) -> User:
        if not (account_id.isascii() and account_id.isdigit() and len(account_id) <= MAX_ID_CHARS):
            raise NotFound("account")
        return access_user(self.actor, int(account_id), right)


def address_of(user: User) -> str:
    return reverse("api_account", args=[user.pk])
