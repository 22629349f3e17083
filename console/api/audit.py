"""The audit trail, newest first."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.fields import Document, Moment
from console.api.paging import BY_SEQUENCE
from console.api.readable import readable
from console.api.schema import Page, listed, shown
from console.api.views import ApiView
from tenants.access import require
from tenants.actors import Actor
from tenants.errors import NotFound
from tenants.models import AuditEvent
from tenants.roles import Right

OUTCOMES = ("success", "failure")
LOOKUPS = {
    "tenant": "tenant_id",
    "actor": "actor_id",
    "action": "action",
    "target": "target_id",
    "outcome": "outcome",
    "request_id": "request_id",
    "since": "at__gte",
    "until": "at__lt",
}
"""Names behind the question mark → what they are compared with."""


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


class EventQuery(Page):
    tenant = serializers.CharField(required=False, max_length=40)
    actor = serializers.CharField(required=False, max_length=64)
    action = serializers.CharField(required=False, max_length=64)
    target = serializers.CharField(required=False, max_length=64)
    outcome = serializers.ChoiceField(choices=OUTCOMES, required=False)
    request_id = serializers.CharField(required=False, max_length=64)
    since = Moment(required=False)
    until = Moment(required=False)


class Events(ApiView):
    """`/audit`"""

    @listed("list_events", EventDocument, EventQuery)
    def get(self, request: Request) -> Response:
        """Who did what to which, newest first."""
        wanted: dict[str, Any] = {
            lookup: self.asked[name] for name, lookup in LOOKUPS.items() if name in self.asked
        }
        return self.rows(visible_events(self.actor).filter(**wanted), EventDocument, BY_SEQUENCE)


class OneEvent(ApiView):
    """`/audit/{id}`"""

    @shown("get_event", EventDocument)
    def get(self, request: Request, event_id: str) -> Response:
        """One event."""
        event = visible_events(self.actor).filter(event_id=event_id).first()
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
