"""The fleet: hosts with their devices, and the replicas on them."""

from __future__ import annotations

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.fields import Document, Moment, Ref
from console.api.schema import Page, listed
from console.api.views import ApiView
from serving.control.fleet.access import visible_hosts, visible_replicas
from serving.control.fleet.states import REPLICA_STATES
from tenants.access import require
from tenants.roles import Right


class HostDocument(Document):
    id = serializers.CharField()
    name = serializers.CharField()
    is_live = serializers.BooleanField(help_text="A heartbeat came in the last 15 s.")
    last_seen_at = Moment()
    devices = serializers.ListField(child=serializers.DictField())
    features = serializers.ListField(child=serializers.CharField())
    created_at = Moment()


class ReplicaDocument(Document):
    id = serializers.CharField()
    deployment = Ref("dep_")
    model_name = serializers.CharField(source="deployment.model.name")
    version = Ref("mv_")
    host = Ref("hst_")
    slot = serializers.IntegerField()
    device = serializers.CharField()
    is_wanted = serializers.BooleanField()
    state = serializers.ChoiceField(choices=REPLICA_STATES)
    reason = serializers.CharField()
    restarts = serializers.IntegerField()
    memory_bytes = serializers.IntegerField(allow_null=True)
    load_s = serializers.FloatField(allow_null=True)
    ready_at = Moment(allow_null=True)
    created_at = Moment()


class ReplicaQuery(Page):
    deployment = serializers.CharField(required=False, max_length=40)
    state = serializers.ChoiceField(choices=REPLICA_STATES, required=False)
    is_wanted = serializers.BooleanField(required=False, default=None, allow_null=True)


class Hosts(ApiView):
    """`/hosts`"""

    @listed("list_hosts", HostDocument)
    def get(self, request: Request) -> Response:
        """Machines with an agent, newest first."""
        require(self.actor, Right.VIEW_PLATFORM)
        return self.rows(visible_hosts(self.actor), HostDocument)


class Replicas(ApiView):
    """`/replicas`"""

    @listed("list_replicas", ReplicaDocument, ReplicaQuery)
    def get(self, request: Request) -> Response:
        """Worker processes that should exist, or did; newest first."""
        require(self.actor, Right.VIEW_PLATFORM)
        wanted = {name: self.asked.get(name) for name in ("deployment", "state", "is_wanted")}
        wanted = {name: value for name, value in wanted.items() if value is not None}
        return self.rows(visible_replicas(self.actor).filter(**wanted), ReplicaDocument)
