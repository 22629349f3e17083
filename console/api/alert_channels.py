"""Where alerts are told, what arrived there, and what was given up."""

from __future__ import annotations

from typing import Any, ClassVar

from django.urls import reverse
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.alert_rules import OwnedQuery, owned
from console.api.fields import Body, Document, Moment, Ref, Text
from console.api.paging import NUMBERED
from console.api.schema import done, gone, listed, made, shown
from console.api.silences import MatcherBody
from console.api.trails import named_trail, trail_field
from console.api.views import ApiView
from serving.control.alerts.channels import actions
from serving.control.alerts.channels.models import AlertChannel, AlertDelivery, ChannelKind, DeliveryState
from serving.control.alerts.checks import MAX_MATCHERS
from serving.control.alerts.models import NAME_CHARS
from tenants.roles import Right
from tenants.trail.webhooks.models import MAX_URL_CHARS

LANGUAGES = ("en", "zh-hans")


class ChannelDocument(Document):
    id = serializers.CharField()
    tenant = Ref("tnt_", allow_null=True, help_text="Null: the platform's, told of every tenant's alerts.")
    name = serializers.CharField()
    kind = serializers.ChoiceField(choices=ChannelKind.values)
    language = serializers.ChoiceField(choices=LANGUAGES)
    address = serializers.CharField(
        source="shown_address", help_text="What of it is no secret: the host, or addresses of mail."
    )
    created_by = serializers.CharField()
    created_at = Moment()


class NewChannelDocument(ChannelDocument):
    moving: ClassVar[tuple[str, ...]] = ("secret",)

    secret = serializers.CharField(
        allow_null=True,
        help_text="What receivers of a webhook verify signatures with; shown once, null in replays, else empty.",
    )


class ChannelBody(Body):
    tenant = trail_field()
    name = Text(max_length=NAME_CHARS)
    kind = serializers.ChoiceField(choices=ChannelKind.values)
    address = Text(
        max_length=MAX_URL_CHARS, help_text="The receiver's URL; for mail, addresses separated by commas."
    )
    secret = Text(
        max_length=actions.MAX_SECRET_CHARS,
        allow_blank=True,
        default="",
        help_text="Of a Feishu or DingTalk robot that asks for signatures.",
    )
    language = serializers.ChoiceField(choices=LANGUAGES, default="en")
    matchers = serializers.ListField(
        child=MatcherBody(),
        max_length=MAX_MATCHERS,
        default=list,
        help_text="Alerts that meet all are told here; every alert by default.",
    )


class TestedDocument(Document):
    __test__ = False

    arrived = serializers.BooleanField(source="is_success")
    status = serializers.IntegerField(allow_null=True, help_text="Null when there was no answer.")
    error = serializers.CharField()
    took_ms = serializers.IntegerField()


class AlertDeliveryDocument(Document):
    id = serializers.IntegerField()
    notification = Ref("ntf_", help_text="The same in every attempt: a webhook's `webhook-id`.")
    state = serializers.ChoiceField(choices=DeliveryState.values)
    attempts = serializers.IntegerField()
    status = serializers.IntegerField(allow_null=True, help_text="Of the newest attempt.")
    error = serializers.CharField()
    took_ms = serializers.IntegerField()
    tried_at = Moment(allow_null=True)
    next_attempt_at = Moment()


class ResentNotificationsDocument(Document):
    notifications = serializers.IntegerField(help_text="How many are sent again.")


class Channels(ApiView):
    """`/alert-channels`"""

    @listed("list_alert_channels", ChannelDocument, OwnedQuery)
    def get(self, request: Request) -> Response:
        """Channels of the tenants you see, and of the platform if you see that."""
        return self.rows(owned(self, AlertChannel.objects.select_related("tenant")), ChannelDocument)

    @made("create_alert_channel", ChannelBody, NewChannelDocument)
    def post(self, request: Request) -> Response:
        """Have alerts told somewhere. A webhook's secret is in this answer and nowhere else."""
        values = self.read(ChannelBody)
        tenant = named_trail(self, values.pop("tenant"), Right.MANAGE_ALERTS)

        def act() -> AlertChannel:
            channel, secret = actions.create_channel(by=self.actor, tenant=tenant, **values)
            channel.secret = secret  # type: ignore[attr-defined]
            return channel

        return self.make(act, NewChannelDocument, address_of)


class OneChannel(ApiView):
    """`/alert-channels/{id}`"""

    @shown("get_alert_channel", ChannelDocument)
    def get(self, request: Request, channel_id: str) -> Response:
        """One channel. Its address and secret are not shown again."""
        return self.one(actions.access_channel(self.actor, channel_id, Right.VIEW), ChannelDocument)

    @gone("delete_alert_channel")
    def delete(self, request: Request, channel_id: str) -> Response:
        """Tell nothing there any more. Its log goes too; the trail keeps that it was."""

        def act(channel: AlertChannel) -> Any:
            return actions.delete_channel(by=self.actor, channel=channel)

        return self.remove(lambda: actions.access_channel(self.actor, channel_id), act, ChannelDocument)


class TestChannel(ApiView):
    """`/alert-channels/{id}/test`"""

    __test__ = False

    @done("test_alert_channel", TestedDocument)
    def post(self, request: Request, channel_id: str) -> Response:
        """Send a message that says it is a test; what the receiver said."""
        channel = actions.access_channel(self.actor, channel_id)
        return Response(TestedDocument(actions.test_channel(by=self.actor, channel=channel)).data)


class AlertDeliveries(ApiView):
    """`/alert-channels/{id}/deliveries`"""

    @listed("list_alert_deliveries", AlertDeliveryDocument)
    def get(self, request: Request, channel_id: str) -> Response:
        """What was sent there, newest first: each with its newest attempt."""
        channel = actions.access_channel(self.actor, channel_id, Right.VIEW)
        rows = AlertDelivery.objects.select_related("notification").filter(channel=channel)
        return self.rows(rows, AlertDeliveryDocument, NUMBERED)


class ResendAlerts(ApiView):
    """`/alert-channels/{id}/resend`"""

    @done("resend_alerts", ResentNotificationsDocument)
    def post(self, request: Request, channel_id: str) -> Response:
        """Try what was given up anew."""
        channel = actions.access_channel(self.actor, channel_id)
        return Response({"notifications": actions.resend(by=self.actor, channel=channel)})


def address_of(channel: AlertChannel) -> str:
    return reverse("api_alert_channel", args=[channel.pk])
