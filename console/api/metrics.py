"""The catalog of metrics, and metrics over time: the same numbers the pages show and the rules watch."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.fields import Document, Moment, Query
from console.api.readable import readable
from console.api.schema import shown
from console.api.views import ApiView
from serving.control.catalog.models import Version
from serving.control.telemetry.history import MAX_POINTS, MAX_SERIES, Answer, Question, Unanswerable, read
from serving.control.telemetry.marks import PREFIXES, marks
from serving.control.telemetry.replicas import read_replicas
from serving.telemetry.metrics import METRICS, REPLICA_METRICS, Metric, ReplicaMetric
from tenants.access import require
from tenants.errors import Invalid
from tenants.models import Tenant
from tenants.roles import Right
from tenants.scoping import tenant_scope

LABELS = {
    "tenant": "tenant_id",
    "model": "model",
    "version": "version_id",
    "endpoint": "endpoint",
    "class": "sla_class",
}
"""What a client calls a label → what a series does."""
MAX_METRICS = 16
DEFAULT_S = 3600.0
_SEPARATOR = ","


class MetricDocument(Document):
    name = serializers.CharField()
    unit = serializers.CharField()
    text = serializers.CharField()
    higher_is = serializers.ChoiceField(choices=["worse", "better", "neither"])


class MetricsDocument(Document):
    data = MetricDocument(many=True)  # type: ignore[assignment]
    replicas = MetricDocument(many=True, help_text="Metrics of replicas: `/metrics/replicas`.")
    labels = serializers.ListField(child=serializers.CharField(), help_text="What `by` may name.")


class SeriesDocument(Document):
    labels = serializers.DictField(child=serializers.CharField())
    names = serializers.DictField(
        child=serializers.CharField(), help_text="What ids among the labels are called: slug, version number."
    )
    values = serializers.DictField(
        child=serializers.ListField(child=serializers.FloatField(allow_null=True)),
        help_text="Metric → one value per point; null where there is no evidence.",
    )


class HistoryDocument(Document):
    step_s = serializers.IntegerField()
    starts = serializers.ListField(
        child=serializers.IntegerField(), help_text="Unix seconds at which each point begins."
    )
    covered = serializers.ListField(
        child=serializers.FloatField(),
        help_text="Share of each point that gateways reported on; 0 is a gap, not a zero.",
    )
    series = SeriesDocument(many=True)
    left_out = serializers.IntegerField(help_text=f"Series beyond the {MAX_SERIES} with the most requests.")


class HistoryQuery(Query):
    metric = serializers.CharField(
        default="requests_s",
        max_length=400,
        help_text=f"Names of the catalog, up to {MAX_METRICS} with commas.",
    )
    since = Moment(required=False, help_text="An hour before `until` by default.")
    until = Moment(required=False, help_text="Now by default.")
    step = serializers.IntegerField(
        default=0,
        min_value=0,
        max_value=86_400,
        help_text=f"Seconds of a point, a multiple of ten; at most {MAX_POINTS} points. 0 chooses.",
    )
    by = serializers.CharField(
        default="", max_length=100, help_text=f"Of {', '.join(LABELS)}, several with commas."
    )
    tenant = serializers.CharField(required=False, max_length=40)
    model = serializers.CharField(required=False, max_length=100)
    version = serializers.CharField(required=False, max_length=40)
    endpoint = serializers.CharField(required=False, max_length=40)

    def get_fields(self) -> dict[str, Any]:
        """`class` is a word of the language, and so no name of an attribute."""
        named = {"class": serializers.CharField(required=False, max_length=16)}
        return {**super().get_fields(), **named}


class ReplicaSeriesDocument(Document):
    replica_id = serializers.CharField()
    model = serializers.CharField()
    version_id = serializers.CharField()
    values = serializers.DictField(
        child=serializers.ListField(child=serializers.FloatField(allow_null=True)),
        help_text="Metric → one value per point; null where the replica said nothing.",
    )


class ReplicaHistoryDocument(Document):
    step_s = serializers.IntegerField()
    starts = serializers.ListField(child=serializers.IntegerField())
    series = ReplicaSeriesDocument(many=True)
    left_out = serializers.IntegerField(help_text=f"Replicas beyond the {MAX_SERIES} busiest.")


class ReplicaHistoryQuery(Query):
    metric = serializers.CharField(default="replica_busy_share", max_length=400)
    since = Moment(required=False, help_text="An hour before `until` by default.")
    until = Moment(required=False, help_text="Now by default.")
    step = serializers.IntegerField(default=0, min_value=0, max_value=86_400)
    model = serializers.CharField(required=False, max_length=100)


class MarkDocument(Document):
    at = serializers.FloatField(help_text="Unix seconds.")
    kind = serializers.CharField(help_text=f"One of {', '.join(sorted(set(PREFIXES.values())))}.")
    action = serializers.CharField()
    target = serializers.CharField()
    actor = serializers.CharField()
    event_id = serializers.CharField(
        help_text="The event in the audit trail; empty for an alert that fired or was over."
    )


class MarksDocument(Document):
    data = MarkDocument(many=True)  # type: ignore[assignment]


class MarksQuery(Query):
    since = Moment(required=False, help_text="An hour before `until` by default.")
    until = Moment(required=False, help_text="Now by default.")
    tenant = serializers.CharField(required=False, max_length=40)


class Metrics(ApiView):
    """`/metrics`"""

    @shown("list_metrics", MetricsDocument)
    def get(self, request: Request) -> Response:
        """What can be asked for, charted and alerted on."""
        return Response(
            {
                "data": [_line(one) for one in METRICS.values()],
                "replicas": [_line(one) for one in REPLICA_METRICS.values()],
                "labels": list(LABELS),
            }
        )


class History(ApiView):
    """`/metrics/query`"""

    @shown("query_metrics", HistoryDocument, HistoryQuery)
    def get(self, request: Request) -> Response:
        """Metrics over time, of the tenants whose usage the asker may see."""
        with self._tenants():
            try:
                answer = read(self._question(), time.time())
            except Unanswerable as error:
                raise Invalid({error.field: str(error)}) from None
        return Response(_shown(answer))

    def _tenants(self) -> AbstractContextManager[Any]:
        ids = readable(self.actor, Right.VIEW_USAGE)
        if ids == []:
            require(self.actor, Right.VIEW_USAGE)
        return nullcontext() if ids is None else tenant_scope(ids)

    def _question(self) -> Question:
        return Question(
            _chosen(self.asked, "metric", METRICS, MAX_METRICS),
            *span_asked(self.asked),
            self.asked["step"],
            tuple(LABELS[name] for name in _chosen(self.asked, "by", LABELS, len(LABELS))),
            {label: str(self.asked[name]) for name, label in LABELS.items() if name in self.asked},
        )


class Replicas(ApiView):
    """`/metrics/replicas`"""

    @shown("query_replica_metrics", ReplicaHistoryDocument, ReplicaHistoryQuery)
    def get(self, request: Request) -> Response:
        """Metrics of replicas over time, for whoever sees the platform."""
        require(self.actor, Right.VIEW_PLATFORM)
        names = _chosen(self.asked, "metric", REPLICA_METRICS, MAX_METRICS)
        since, until = span_asked(self.asked)
        try:
            answer = read_replicas(
                names, since, until, time.time(), self.asked["step"], self.asked.get("model")
            )
        except Unanswerable as error:
            raise Invalid({error.field: str(error)}) from None
        return Response(asdict(answer))


def _line(one: Metric | ReplicaMetric) -> dict[str, str]:
    return {"name": one.name, "unit": one.unit, "text": one.text, "higher_is": one.direction}


def span_asked(asked: Mapping[str, Any]) -> tuple[float, float]:
    """From and until, in Unix seconds."""
    until, since = asked.get("until"), asked.get("since")
    end_s = until.timestamp() if until else time.time()
    return since.timestamp() if since else end_s - DEFAULT_S, end_s


def _chosen(asked: Mapping[str, Any], field: str, known: Any, most: int) -> tuple[str, ...]:
    names = tuple(name.strip() for name in asked[field].split(_SEPARATOR) if name.strip())
    unknown = [name for name in names if name not in known]
    if unknown or len(set(names)) < len(names) or len(names) > most:
        what = f"{unknown[0]!r} is not one of them" if unknown else "each once"
        raise Invalid({field: f"Up to {most} known names with commas between: {what}."})
    return names


class Marks(ApiView):
    """`/metrics/marks`"""

    @shown("list_marks", MarksDocument, MarksQuery)
    def get(self, request: Request) -> Response:
        """What happened besides: the newest events that may move a chart, for whoever reads the trail."""
        ids = readable(self.actor, Right.VIEW_AUDIT)
        tenant = self.asked.get("tenant")
        if tenant is not None:
            ids = [str(tenant)] if ids is None or tenant in ids else []
        until: datetime = self.asked.get("until") or timezone.now()
        since: datetime = self.asked.get("since") or until - timedelta(seconds=DEFAULT_S)
        with nullcontext() if ids is None else tenant_scope(ids):
            found = marks(since, until)
        return Response({"data": [asdict(mark) for mark in found]})


def _names(answer: Answer) -> tuple[dict[str, str], dict[str, str]]:
    """Slugs of tenants and numbers of versions that occur, as far as the asker sees them."""
    tenants = {one.labels["tenant_id"] for one in answer.series if "tenant_id" in one.labels}
    versions = {one.labels["version_id"] for one in answer.series if "version_id" in one.labels}
    slugs = Tenant.objects.filter(pk__in=tenants).values_list("pk", "slug") if tenants else ()
    numbers = Version.objects.filter(pk__in=versions).values_list("pk", "number") if versions else ()
    return dict(slugs), {pk: str(number) for pk, number in numbers}


def _shown(answer: Answer) -> dict[str, Any]:
    slugs, numbers = _names(answer)
    series = [
        {
            "labels": {name: one.labels[label] for name, label in LABELS.items() if label in one.labels},
            "names": {
                name: found[value]
                for name, found in (("tenant", slugs), ("version", numbers))
                if (value := one.labels.get(LABELS[name], "")) in found
            },
            "values": one.values,
        }
        for one in answer.series
    ]
    return {
        "step_s": answer.step_s,
        "starts": answer.starts,
        "covered": answer.covered,
        "series": series,
        "left_out": answer.left_out,
    }
