"""Members: who belongs to a tenant, and as what."""

from __future__ import annotations

from typing import Any

from django.urls import reverse
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.fields import Body, Document, Moment, Ref, Text
from console.api.schema import Page, changed, gone, listed, made, shown
from console.api.views import ApiView
from tenants.access import access_account, access_member, access_tenant
from tenants.actions.members import add_member, change_role, remove_member
from tenants.actions.tenants import lock_tenant
from tenants.models import Membership
from tenants.roles import Right, Role


class UserDocument(Document):
    id = serializers.CharField(source="pk")
    username = serializers.CharField()
    email = serializers.CharField()


class MemberDocument(Document):
    id = serializers.CharField()
    tenant = Ref("tnt_")
    user = UserDocument()
    role = serializers.ChoiceField(choices=[role.value for role in Role])
    created_at = Moment()


class RoleBody(Body):
    role = serializers.ChoiceField(choices=[role.value for role in Role])


class MemberBody(RoleBody):
    login = Text(max_length=254, help_text="User name or e-mail address of an account.")


class Members(ApiView):
    """`/tenants/{id}/members`"""

    @listed("list_members", MemberDocument, Page)
    def get(self, request: Request, tenant_id: str) -> Response:
        """People of a tenant, the newest first."""
        tenant = access_tenant(self.actor, tenant_id)
        rows = Membership.objects.select_related("user", "tenant").filter(tenant=tenant)
        return self.rows(rows, MemberDocument)

    @made("add_member", MemberBody, MemberDocument)
    def post(self, request: Request, tenant_id: str) -> Response:
        """Give an account a role in the tenant."""
        tenant = access_tenant(self.actor, tenant_id, Right.MANAGE_MEMBERS)
        values = self.read(MemberBody)
        user = access_account(self.actor, tenant.pk, values["login"])

        def act() -> Membership:
            return add_member(by=self.actor, tenant=tenant, user=user, role=values["role"])

        return self.make(act, MemberDocument, lambda member: reverse("api_member", args=[member.pk]))


class OneMember(ApiView):
    """`/members/{id}`"""

    @shown("get_member", MemberDocument)
    def get(self, request: Request, member_id: str) -> Response:
        """One member."""
        return self.one(access_member(self.actor, member_id), MemberDocument)

    @changed("change_member", RoleBody, MemberDocument)
    def patch(self, request: Request, member_id: str) -> Response:
        """Give a member another role."""
        role = self.read(RoleBody)["role"]

        def act(member: Membership) -> Any:
            return change_role(by=self.actor, membership=member, role=role)

        return self.change(lambda: self._managed(member_id), act, MemberDocument)

    @gone("remove_member")
    def delete(self, request: Request, member_id: str) -> Response:
        """Take a member's role away. The account stays."""

        def act(member: Membership) -> Any:
            return remove_member(by=self.actor, membership=member)

        return self.remove(lambda: self._managed(member_id), act, MemberDocument)

    def hold(self, row: Membership) -> None:
        """The tenant's lock, as the actions take it: two owners must not remove each other."""
        lock_tenant(row.tenant)

    def _managed(self, member_id: str) -> Membership:
        return access_member(self.actor, member_id, Right.MANAGE_MEMBERS)
