"""Silences: alerts that are not told for a while. They fire, and are shown, all the same."""

from __future__ import annotations

from typing import Any

from django.urls import reverse
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.alert_rules import OwnedQuery, owned
from console.api.fields import Body, Document, Moment, Ref, Text
from console.api.schema import Rehearsed, listed, made, shown
from console.api.trails import named_trail, trail_field
from console.api.views import ApiView
from serving.control.alerts.access import access_silence, visible_silences
from serving.control.alerts.actions import create_silence, end_silence
from serving.control.alerts.checks import MAX_MATCHERS, MAX_VALUE_CHARS
from serving.control.alerts.models import MAX_COMMENT_CHARS, AlertSilence
from tenants.roles import Right

OPERATORS = ("=", "!=", "=~", "!~")


class MatcherDocument(Document):
    label = serializers.CharField()  # type: ignore[assignment]
    operator = serializers.ChoiceField(choices=OPERATORS)
    value = serializers.CharField()


class SilenceDocument(Document):
    id = serializers.CharField()
    tenant = Ref("tnt_", allow_null=True, help_text="Null: the platform's, over every alert.")
    matchers = MatcherDocument(many=True)
    starts_at = Moment()
    ends_at = Moment()
    comment = serializers.CharField()
    created_by = serializers.CharField()
    created_at = Moment()


class MatcherBody(Body):
    label = Text(max_length=40)  # type: ignore[assignment]
    operator = serializers.ChoiceField(choices=OPERATORS, default="=")
    value = Text(max_length=MAX_VALUE_CHARS, allow_blank=True, trim_whitespace=False)


class SilenceBody(Body):
    tenant = trail_field()
    matchers = serializers.ListField(
        child=MatcherBody(),
        min_length=1,
        max_length=MAX_MATCHERS,
        help_text="All must be met, by the alert's labels, `alert` (its rule's name) and `severity`.",
    )
    starts_at = Moment(required=False, allow_null=True, default=None, help_text="Now by default.")
    ends_at = Moment()
    comment = Text(max_length=MAX_COMMENT_CHARS)


class Silences(ApiView):
    """`/silences`"""

    @listed("list_silences", SilenceDocument, OwnedQuery)
    def get(self, request: Request) -> Response:
        """Silences, those that are over too, newest first."""
        return self.rows(owned(self, visible_silences()), SilenceDocument)

    @made("create_silence", SilenceBody, SilenceDocument, Rehearsed)
    def post(self, request: Request) -> Response:
        """Keep alerts that meet every matcher from being told until `ends_at`."""
        values = self.read(SilenceBody)
        tenant = named_trail(self, values.pop("tenant"), Right.MANAGE_ALERTS)
        return self.make(
            lambda: create_silence(by=self.actor, tenant=tenant, **values), SilenceDocument, address_of
        )


class OneSilence(ApiView):
    """`/silences/{id}`"""

    @shown("get_silence", SilenceDocument)
    def get(self, request: Request, silence_id: str) -> Response:
        """One silence."""
        return self.one(access_silence(self.actor, silence_id), SilenceDocument)


class EndSilence(ApiView):
    """`/silences/{id}/end`"""

    @made("end_silence", None, SilenceDocument, status=200)
    def post(self, request: Request, silence_id: str) -> Response:
        """End it now; its alerts are told again."""

        def act(silence: AlertSilence) -> Any:
            return end_silence(by=self.actor, silence=silence)

        return self.change(
            lambda: access_silence(self.actor, silence_id, Right.MANAGE_ALERTS), act, SilenceDocument
        )


def address_of(silence: AlertSilence) -> str:
    return reverse("api_silence", args=[silence.pk])
