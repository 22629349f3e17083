"""Invitations: a link that makes somebody a member. It goes out by mail, or is in the answer to its making."""

from __future__ import annotations

from typing import Any, ClassVar

from django.conf import settings
from django.urls import reverse
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.fields import Document, Moment, Ref
from console.api.members import RoleBody
from console.api.schema import listed, made, shown
from console.api.views import ApiView
from console.invitation_letters import link_of, send_invitation
from tenants.access import access_tenant
from tenants.actions.invitations import invite, renew_invitation, withdraw_invitation
from tenants.invitations import access_invitation
from tenants.people import Invitation
from tenants.roles import Right, Role

STATES = ("pending", "expired", "accepted", "withdrawn")


class InvitationDocument(Document):
    moving: ClassVar[tuple[str, ...]] = ("state",)

    id = serializers.CharField()
    tenant = Ref("tnt_")
    email = serializers.CharField()
    role = serializers.ChoiceField(choices=[role.value for role in Role])
    state = serializers.ChoiceField(choices=STATES)
    invited_by = serializers.CharField(source="inviter_name")
    created_at = Moment()
    expires_at = Moment()
    accepted_at = Moment(allow_null=True)
    withdrawn_at = Moment(allow_null=True)


class SentInvitationDocument(InvitationDocument):
    moving: ClassVar[tuple[str, ...]] = (*InvitationDocument.moving, "link", "is_mailed")

    is_mailed = serializers.BooleanField(
        allow_null=True,
        help_text="False where the installation sends no mail, and where the mail could not be sent; null in replays.",
    )
    link = serializers.CharField(
        allow_null=True,
        help_text="To hand on where the installation sends no mail; shown once, null in replays.",
    )


class InvitationBody(RoleBody):
    email = serializers.EmailField(max_length=254, help_text="Only a person of this address can accept.")


class Invitations(ApiView):
    """`/tenants/{id}/invitations`"""

    @listed("list_invitations", InvitationDocument)
    def get(self, request: Request, tenant_id: str) -> Response:
        """Invitations of a tenant, newest first; also those that were used, withdrawn or ran out."""
        tenant = access_tenant(self.actor, tenant_id, Right.MANAGE_MEMBERS)
        return self.rows(
            Invitation.objects.filter(tenant=tenant).select_related("tenant"), InvitationDocument
        )

    @made("create_invitation", InvitationBody, SentInvitationDocument)
    def post(self, request: Request, tenant_id: str) -> Response:
        """Invite somebody: for a week, once, with a role up to your own."""
        tenant = access_tenant(self.actor, tenant_id, Right.MANAGE_MEMBERS)
        values = self.read(InvitationBody)

        def act() -> Invitation:
            return _sent(self, *invite(by=self.actor, tenant=tenant, by_mail=settings.SENDS_MAIL, **values))

        return self.make(act, SentInvitationDocument, _address)


class OneInvitation(ApiView):
    """`/invitations/{id}`"""

    @shown("get_invitation", InvitationDocument)
    def get(self, request: Request, invitation_id: str) -> Response:
        """One invitation, without its link."""
        return self.one(access_invitation(self.actor, invitation_id), InvitationDocument)


class RenewInvitation(ApiView):
    """`/invitations/{id}/renew`"""

    @made("renew_invitation", None, SentInvitationDocument)
    def post(self, request: Request, invitation_id: str) -> Response:
        """Send it again: a new link for another week. The old one stops working."""
        row = access_invitation(self.actor, invitation_id)

        def act() -> Invitation:
            made = renew_invitation(by=self.actor, invitation=row, by_mail=settings.SENDS_MAIL)
            return _sent(self, *made)

        return self.make(act, SentInvitationDocument, _address)


class WithdrawInvitation(ApiView):
    """`/invitations/{id}/withdraw`"""

    @made("withdraw_invitation", None, InvitationDocument, status=200)
    def post(self, request: Request, invitation_id: str) -> Response:
        """Let the link work no more."""

        def act(row: Invitation) -> Any:
            withdraw_invitation(by=self.actor, invitation=row)

        return self.change(lambda: access_invitation(self.actor, invitation_id), act, InvitationDocument)


def _sent(view: ApiView, row: Invitation, secret: str) -> Invitation:
    """By mail where there is mail, after the commit; else the link is in the answer, this once."""
    link, is_mailed = link_of(view.request._request, secret), settings.SENDS_MAIL and not view.is_rehearsal
    if is_mailed:
        view.afterwards.append(lambda: {"is_mailed": send_invitation(row, link)})
    row.is_mailed = is_mailed  # type: ignore[attr-defined]
    row.link = None if settings.SENDS_MAIL else link  # type: ignore[attr-defined]
    return row


def _address(row: Invitation) -> str:
    return reverse("api_invitation", args=[row.pk])
