"""The audit trail, newest first."""

from __future__ import annotations

from datetime import UTC
from typing import Any

from django.db.models import QuerySet
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.audit_archives import ArchiveDocument
from console.api.fields import Body, Document, Moment, Text
from console.api.paging import BY_SEQUENCE
from console.api.readable import readable
from console.api.schema import Page, listed, shown
from console.api.views import ApiView
from tenants.access import require
from tenants.actors import Actor
from tenants.errors import Archived, NotFound
from tenants.models import AuditEvent
from tenants.roles import Right
from tenants.trail.archives.finding import archive_of_event
from tenants.trail.search import MAX_FILTER_CHARS, Asked, matching, moment

OUTCOMES = ("success", "failure")


class DayOrMoment(Text):
    """`2026-03-01`, or an RFC 3339 time."""

    def to_internal_value(self, data: Any) -> str:
        text = super().to_internal_value(data)
        if moment(text, UTC) is None:
            raise serializers.ValidationError("A day such as 2026-03-01, or a time with its offset.")
        return text


class EventDocument(Document):
    id = serializers.CharField(source="event_id")
    seq = serializers.IntegerField()
    at = Moment()
    tenant_id = serializers.CharField(allow_null=True)
    tenant_name = serializers.CharField()
    actor_type = serializers.CharField()
    actor_id = serializers.CharField()
    actor_name = serializers.CharField()
    action = serializers.CharField()
    target_type = serializers.CharField()
    target_id = serializers.CharField()
    target_name = serializers.CharField()
    outcome = serializers.ChoiceField(choices=OUTCOMES)
    reason = serializers.CharField()
    before = serializers.DictField(allow_null=True)
    after = serializers.DictField(allow_null=True)
    request_id = serializers.CharField()
    trace_id = serializers.CharField()
    ip = serializers.CharField(allow_null=True)
    user_agent = serializers.CharField()


class EventFilters(Body):
    """The filters of the page, by the same names."""

    q = Text(required=False, max_length=MAX_FILTER_CHARS, help_text="Words that all occur in the event.")
    action = Text(required=False, max_length=MAX_FILTER_CHARS)
    outcome = serializers.ChoiceField(choices=OUTCOMES, required=False)
    actor_type = Text(required=False, max_length=MAX_FILTER_CHARS)
    actor_id = Text(required=False, max_length=MAX_FILTER_CHARS)
    target_type = Text(required=False, max_length=MAX_FILTER_CHARS)
    target_id = Text(required=False, max_length=MAX_FILTER_CHARS)
    request_id = Text(required=False, max_length=MAX_FILTER_CHARS)
    trace_id = Text(required=False, max_length=MAX_FILTER_CHARS)
    since = DayOrMoment(required=False, help_text="A day, from its start, or a time.")
    until = DayOrMoment(required=False, help_text="A day, to its end, or a time, not included.")


class EventQuery(EventFilters, Page):
    tenant = serializers.CharField(required=False, max_length=40)


class Events(ApiView):
    """`/audit`"""

    @listed("list_events", EventDocument, EventQuery)
    def get(self, request: Request) -> Response:
        """Who did what to which, newest first."""
        rows = visible_events(self.actor)
        if "tenant" in self.asked:
            rows = rows.filter(tenant_id=self.asked["tenant"])
        asked = Asked.of(self.asked)
        return self.rows(matching(rows, asked), EventDocument, BY_SEQUENCE)


class OneEvent(ApiView):
    """`/audit/{id}`"""

    @shown("get_event", EventDocument)
    def get(self, request: Request, event_id: str) -> Response:
        """One event. Of an archived one the answer is 410, with the archive that holds it as `archive`."""
        event = visible_events(self.actor).filter(event_id=event_id).first()
        if event is None and (archive := archive_of_event(self.actor, event_id)):
            raise Archived(f"The event is in archive {archive.pk}.", ArchiveDocument(archive).data)
        if event is None:
            raise NotFound("event")
        return self.one(event, EventDocument)


def visible_events(actor: Actor) -> QuerySet[AuditEvent]:
    """Raises `NotAllowed` for whoever may read no tenant's trail."""
    ids = readable(actor, Right.VIEW_AUDIT)
    if ids is None:
        return AuditEvent.objects.all()
    if not ids:
        require(actor, Right.VIEW_AUDIT)
    return AuditEvent.objects.filter(tenant_id__in=ids)
