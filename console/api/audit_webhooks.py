"""Where audit events are sent as they happen, what could not be delivered, and the last attempts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar

from django.urls import reverse
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.fields import Body, Document, Flag, Moment, Text, Whole
from console.api.paging import NUMBERED
from console.api.schema import changed, done, gone, listed, made, shown
from console.api.trails import TrailPage, named_trail, trail_field, trail_rows
from console.api.views import ApiView
from tenants.models import AuditDeadLetter, AuditDelivery, AuditWebhook
from tenants.roles import Right
from tenants.trail.webhooks import actions
from tenants.trail.webhooks.models import MAX_URL_CHARS

DAY_S = 24 * 3600
STATES = ("active", "failing", "paused")


class WebhookDocument(Document):
    moving: ClassVar[tuple[str, ...]] = (
        "state",
        "attempts",
        "next_attempt_at",
        "failing_since",
        "last_error",
        "delivered",
        "last_delivered_at",
    )

    id = serializers.CharField()
    tenant_id = serializers.CharField(allow_null=True, help_text="Null gets every event of the platform.")
    url = serializers.CharField()
    state = serializers.ChoiceField(choices=STATES)
    is_paused = serializers.BooleanField()
    pause_reason = serializers.CharField()
    attempts = serializers.IntegerField(help_text="How often the event whose turn it is failed.")
    next_attempt_at = Moment()
    failing_since = Moment(allow_null=True)
    last_error = serializers.CharField()
    delivered = serializers.IntegerField()
    last_delivered_at = Moment(allow_null=True)
    created_at = Moment()


class NewWebhookDocument(WebhookDocument):
    moving: ClassVar[tuple[str, ...]] = (*WebhookDocument.moving, "secret")

    secret = serializers.CharField(
        allow_null=True, help_text="What receivers verify signatures with; shown once, null in replays."
    )


class WebhookChange(Body):
    url = Text(
        max_length=MAX_URL_CHARS, help_text="Gets a POST for each event, signed as Standard Webhooks says."
    )


class WebhookBody(WebhookChange):
    tenant = trail_field()
    from_start = Flag(default=False, help_text="Send what happened before, too.")


class RollSecretBody(Body):
    overlap_s = Whole(
        default=DAY_S,
        max_value=int(actions.MAX_OVERLAP.total_seconds()),
        help_text="How long messages carry a signature of the old secret, too.",
    )


class DeadLetterDocument(Document):
    id = serializers.IntegerField()
    event_id = serializers.CharField()
    attempts = serializers.IntegerField()
    error = serializers.CharField()
    dead_at = Moment()
    is_asked_again = serializers.BooleanField(help_text="It was sent again, and has not arrived yet.")


class DeliveryDocument(Document):
    event_id = serializers.CharField()
    at = Moment()
    attempt = serializers.IntegerField()
    status = serializers.IntegerField(allow_null=True, help_text="Null when there was no answer.")
    error = serializers.CharField()
    took_ms = serializers.IntegerField()


class ResendBody(Body):
    letter = Whole(
        max_value=(1 << 63) - 1, allow_null=True, default=None, help_text="One dead letter; null for all."
    )


class ResentDocument(Document):
    events = serializers.IntegerField(help_text="How many are sent again.")


class Webhooks(ApiView):
    """`/audit-webhooks`"""

    @listed("list_audit_webhooks", WebhookDocument, TrailPage)
    def get(self, request: Request) -> Response:
        """Webhooks of the trails you may export, newest first: at most one of each."""
        return self.rows(trail_rows(self, AuditWebhook.objects.all(), Right.EXPORT_AUDIT), WebhookDocument)

    @made("create_audit_webhook", WebhookBody, NewWebhookDocument)
    def post(self, request: Request) -> Response:
        """Have each event sent somewhere. The secret is in this answer and nowhere else."""
        values = self.read(WebhookBody)
        tenant = named_trail(self, values.pop("tenant"), Right.EXPORT_AUDIT, Right.EDIT_TENANT)

        def act() -> AuditWebhook:
            return _with_secret(*actions.create_webhook(by=self.actor, tenant=tenant, **values))

        return self.make(act, NewWebhookDocument, _address)


class WebhookView(ApiView):
    """What the addresses of one webhook share."""

    def to_change(self, webhook_id: str) -> AuditWebhook:
        return actions.access_webhook(self.actor, webhook_id)

    def to_read(self, webhook_id: str) -> AuditWebhook:
        return actions.access_webhook(self.actor, webhook_id, to_change=False)


class OneWebhook(WebhookView):
    """`/audit-webhooks/{id}`"""

    @shown("get_audit_webhook", WebhookDocument)
    def get(self, request: Request, webhook_id: str) -> Response:
        """One webhook: how far it is, and what went wrong last."""
        return self.one(self.to_read(webhook_id), WebhookDocument)

    @changed("change_audit_webhook", WebhookChange, WebhookDocument)
    def patch(self, request: Request, webhook_id: str) -> Response:
        """Send to another address; what failed is tried there at once."""
        values = self.read(WebhookChange)

        def act(webhook: AuditWebhook) -> Any:
            return actions.update_webhook(by=self.actor, webhook=webhook, **values)

        return self.change(lambda: self.to_change(webhook_id), act, WebhookDocument)

    @gone("delete_audit_webhook")
    def delete(self, request: Request, webhook_id: str) -> Response:
        """Send nothing any more. Its dead letters and its log go too; the trail keeps that it was."""

        def act(webhook: AuditWebhook) -> Any:
            return actions.delete_webhook(by=self.actor, webhook=webhook)

        return self.remove(lambda: self.to_change(webhook_id), act, WebhookDocument)


class RollWebhook(WebhookView):
    """`/audit-webhooks/{id}/roll`"""

    @made("roll_audit_webhook", RollSecretBody, NewWebhookDocument)
    def post(self, request: Request, webhook_id: str) -> Response:
        """Make a new secret, which is in this answer only; the old one signs too for a while."""
        webhook = self.to_change(webhook_id)
        overlap = timedelta(seconds=self.read(RollSecretBody)["overlap_s"])

        def act() -> AuditWebhook:
            return _with_secret(*actions.roll_secret(by=self.actor, webhook=webhook, overlap=overlap))

        return self.make(act, NewWebhookDocument, _address)


class PauseWebhook(WebhookView):
    """`/audit-webhooks/{id}/pause`"""

    @made("pause_audit_webhook", None, WebhookDocument, status=200)
    def post(self, request: Request, webhook_id: str) -> Response:
        """Send nothing until it is resumed; events wait."""

        def act(webhook: AuditWebhook) -> Any:
            return actions.pause_webhook(by=self.actor, webhook=webhook)

        return self.change(lambda: self.to_change(webhook_id), act, WebhookDocument)


class ResumeWebhook(WebhookView):
    """`/audit-webhooks/{id}/resume`"""

    @made("resume_audit_webhook", None, WebhookDocument, status=200)
    def post(self, request: Request, webhook_id: str) -> Response:
        """Go on at once where it stopped, also out of a back-off."""

        def act(webhook: AuditWebhook) -> Any:
            return actions.resume_webhook(by=self.actor, webhook=webhook)

        return self.change(lambda: self.to_change(webhook_id), act, WebhookDocument)


class DeadLetters(WebhookView):
    """`/audit-webhooks/{id}/dead-letters`"""

    @listed("list_audit_dead_letters", DeadLetterDocument)
    def get(self, request: Request, webhook_id: str) -> Response:
        """Events that were given up, newest first."""
        webhook = self.to_read(webhook_id)
        return self.rows(AuditDeadLetter.objects.filter(webhook_id=webhook.pk), DeadLetterDocument, NUMBERED)


class ResendDeadLetters(WebhookView):
    """`/audit-webhooks/{id}/resend`"""

    @done("resend_audit_dead_letters", ResentDocument, ResendBody)
    def post(self, request: Request, webhook_id: str) -> Response:
        """Try one event that was given up once more, or all of them."""
        webhook = self.to_change(webhook_id)
        letter = self.read(ResendBody)["letter"]
        events = actions.resend_dead_letters(by=self.actor, webhook=webhook, letter=letter)
        return Response({"events": events})


class Deliveries(WebhookView):
    """`/audit-webhooks/{id}/deliveries`"""

    @listed("list_audit_deliveries", DeliveryDocument)
    def get(self, request: Request, webhook_id: str) -> Response:
        """The last attempts, newest first; older ones are not kept."""
        webhook = self.to_read(webhook_id)
        return self.rows(AuditDelivery.objects.filter(webhook_id=webhook.pk), DeliveryDocument, NUMBERED)


def _with_secret(webhook: AuditWebhook, secret: str) -> AuditWebhook:
    webhook.secret = secret  # type: ignore[attr-defined]
    return webhook


def _address(webhook: AuditWebhook) -> str:
    return reverse("api_audit_webhook", args=[webhook.pk])
