"""Accounts of people. Passwords and second factors never pass here: people set their own on the console's pages."""

from __future__ import annotations

from typing import Any

from django.urls import reverse
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.again import ask_who_it_is
from console.api.fields import Body, Document, Flag, Moment, Text
from console.api.members import MemberDocument
from console.api.paging import NUMBERED
from console.api.schema import Page, changed, listed, made, shown
from console.api.views import ApiView
from console.people import named_like, with_factor
from tenants.access import access_user, require
from tenants.actions.users import change_platform_role, create_user, reset_second_factor, set_active
from tenants.actors import Actor
from tenants.models import Membership, User
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
    has_second_factor = serializers.BooleanField(source="has_factor")
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
    q = serializers.CharField(required=False, max_length=100, help_text="Part of a user name or an address.")


class Accounts(ApiView):
    """`/accounts`"""

    @listed("list_accounts", AccountDocument, AccountQuery)
    def get(self, request: Request) -> Response:
        """Everybody who can sign in, newest first."""
        require(self.actor, Right.VIEW_PLATFORM)
        rows = with_factor(User.objects.all())
        if "username" in self.asked:
            rows = rows.filter(username__iexact=self.asked["username"])
        if "q" in self.asked:
            rows = rows.filter(named_like(self.asked["q"]))
        return self.rows(rows, AccountDocument, NUMBERED)

    @made("create_account", AccountBody, AccountDocument)
    def post(self, request: Request) -> Response:
        """Make an account without a password: it signs in by single sign-on, or once a password was set."""
        require(self.actor, Right.MANAGE_USERS)
        ask_who_it_is(request._request)
        values = self.read(AccountBody)

        def act() -> User:
            made = create_user(by=self.actor, **values)
            return account_of(self.actor, str(made.pk))

        return self.make(act, AccountDocument, address_of)


class AccountView(ApiView):
    """What the addresses of one account share."""

    def hold(self, row: User) -> None:
        """The actions lock all operators, in one order, before the account: nothing here may come between."""
        list(User.objects.select_for_update().filter(platform_role=PlatformRole.OPERATOR).order_by("pk"))
        User.objects.select_for_update().get(pk=row.pk)

    def managed(self, account_id: str) -> User:
        return account_of(self.actor, account_id, Right.MANAGE_USERS)


class OneAccount(AccountView):
    """`/accounts/{id}`"""

    @shown("get_account", AccountDocument)
    def get(self, request: Request, account_id: str) -> Response:
        """One account."""
        return self.one(account_of(self.actor, account_id), AccountDocument)

    @changed("change_account", AccountChange, AccountDocument)
    def patch(self, request: Request, account_id: str) -> Response:
        """Give a role on the platform or take it; switch an account off, which ends its sessions, or on."""
        self.managed(account_id)
        ask_who_it_is(request._request)
        values = self.read(AccountChange)

        def act(user: User) -> Any:
            if "platform_role" in values:
                change_platform_role(by=self.actor, user=user, platform_role=values["platform_role"])
            if "is_active" in values:
                set_active(by=self.actor, user=user, is_active=values["is_active"])

        return self.change(lambda: self.managed(account_id), act, AccountDocument)


class ResetSecondFactor(AccountView):
    """`/accounts/{id}/reset-second-factor`"""

    @made("reset_second_factor", None, AccountDocument, status=200)
    def post(self, request: Request, account_id: str) -> Response:
        """For whoever lost telephone and recovery codes: their password alone signs in again. Sessions end."""
        self.managed(account_id)
        ask_who_it_is(request._request)

        def act(user: User) -> Any:
            reset_second_factor(by=self.actor, user=user)

        return self.change(lambda: self.managed(account_id), act, AccountDocument)


class AccountMemberships(ApiView):
    """`/accounts/{id}/memberships`"""

    @listed("list_account_memberships", MemberDocument)
    def get(self, request: Request, account_id: str) -> Response:
        """Which tenants somebody belongs to, and as what, the newest first."""
        person = account_of(self.actor, account_id)
        rows = Membership.objects.select_related("user", "tenant").filter(user=person)
        return self.rows(rows, MemberDocument)


def account_of(actor: Actor, account_id: str, right: Right = Right.VIEW_PLATFORM) -> User:
    """The gate to an account by the text in an address."""
    user = access_user(actor, number_of(account_id), right)
    return with_factor(User.objects.filter(pk=user.pk)).get()


def number_of(account_id: str) -> int:
    """The number an account's id is; one that nobody has for any other text."""
    is_number = account_id.isascii() and account_id.isdigit() and len(account_id) <= MAX_ID_CHARS
    return int(account_id) if is_number else 0


def address_of(user: User) -> str:
    return reverse("api_account", args=[user.pk])
