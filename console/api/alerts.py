"""Alerts as they stand, what became of earlier ones, and who looks at one."""

from __future__ import annotations

from typing import Any, ClassVar

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.fields import Body, Document, Moment, Ref, Text
from console.api.paging import NEWEST_SINCE, NUMBERED
from console.api.readable import readable
from console.api.schema import Page, listed, made, shown
from console.api.views import ApiView
from serving.control.alerts.access import ALERTS_WHY, access_alert, visible_alerts, visible_transitions
from serving.control.alerts.actions import acknowledge
from serving.control.alerts.measures import measure_of
from serving.control.alerts.models import MAX_COMMENT_CHARS, Alert, AlertStateChoice, SeverityChoice
from serving.control.alerts.rules import condition_of
from tenants.roles import Right
from tenants.scoping import all_tenants

STATES = AlertStateChoice.values
SEVERITIES = SeverityChoice.values


class AlertDocument(Document):
    moving: ClassVar[tuple[str, ...]] = ("value", "is_stale", "quiet_by")

    id = serializers.CharField(source="pk", help_text="Of its rule and labels: the same when it fires again.")
    tenant = Ref("tnt_", allow_null=True, help_text="Whom it concerns; null: nobody in particular.")
    rule = Ref("alr_")
    rule_name = serializers.CharField(source="rule.name")
    summary = serializers.CharField(source="rule.summary")
    severity = serializers.ChoiceField(source="rule.severity", choices=SEVERITIES)
    labels = serializers.DictField(child=serializers.CharField())
    state = serializers.ChoiceField(choices=STATES)
    value = serializers.FloatField(allow_null=True, help_text="The last one known.")
    threshold = serializers.SerializerMethodField(help_text="What the value is compared with.")
    unit = serializers.SerializerMethodField()
    is_stale = serializers.BooleanField(help_text="There is no evidence at present; it fires until there is.")
    since = Moment()
    fired_at = Moment(allow_null=True)
    resolved_at = Moment(allow_null=True)
    quiet_by = serializers.CharField(help_text="The silence that keeps it from being told, or `inhibited`.")
    acknowledged_at = Moment(allow_null=True)
    acknowledged_by = serializers.CharField()
    acknowledgement = serializers.CharField()

    def get_threshold(self, alert: Alert) -> float | None:
        return measure_of(condition_of(alert.rule.condition)).threshold

    def get_unit(self, alert: Alert) -> str:
        return measure_of(condition_of(alert.rule.condition)).unit


class TransitionDocument(Document):
    id = serializers.IntegerField()
    at = Moment()
    state = serializers.ChoiceField(choices=("firing", "resolved"))
    alert_id = serializers.CharField(source="fingerprint")
    fired_at = Moment(help_text="With `alert_id` it names the episode.")
    rule_id = serializers.CharField()
    rule_name = serializers.CharField()
    severity = serializers.ChoiceField(choices=SEVERITIES)
    tenant = Ref("tnt_", allow_null=True)
    labels = serializers.DictField(child=serializers.CharField())
    value = serializers.FloatField(allow_null=True)
    why = serializers.CharField(help_text="Why it resolved: `calm`, `gone`, `no_data`, `rule_changed`.")


class AlertQuery(Page):
    tenant = serializers.CharField(required=False, max_length=40)
    state = serializers.ChoiceField(choices=STATES, required=False)
    severity = serializers.ChoiceField(choices=SEVERITIES, required=False)


class HistoryQuery(Page):
    tenant = serializers.CharField(required=False, max_length=40)
    rule = serializers.CharField(required=False, max_length=40)
    alert = serializers.CharField(required=False, max_length=40)
    severity = serializers.ChoiceField(choices=SEVERITIES, required=False)


class AcknowledgeBody(Body):
    comment = Text(max_length=MAX_COMMENT_CHARS, allow_blank=True, default="")


class Alerts(ApiView):
    """`/alerts`"""

    @listed("list_alerts", AlertDocument, AlertQuery)
    def get(self, request: Request) -> Response:
        """What is pending, fires, or resolved within the last hour, newest first."""
        named = {"tenant": "tenant_id", "state": "state", "severity": "rule__severity"}
        rows = visible_alerts(readable(self.actor, Right.VIEW)).filter(**_filters(self.asked, named))
        with all_tenants(ALERTS_WHY):
            return self.rows(rows, AlertDocument, NEWEST_SINCE)


class OneAlert(ApiView):
    """`/alerts/{id}`"""

    @shown("get_alert", AlertDocument)
    def get(self, request: Request, alert_id: str) -> Response:
        """One alert."""
        return self.one(access_alert(self.actor, alert_id), AlertDocument)


class AcknowledgeAlert(ApiView):
    """`/alerts/{id}/acknowledge`"""

    @made("acknowledge_alert", AcknowledgeBody, AlertDocument, status=200)
    def post(self, request: Request, alert_id: str) -> Response:
        """Say that somebody looks at it: it is not told again until it fires anew."""

        def fetch() -> Alert:
            return access_alert(self.actor, alert_id, to_acknowledge=True)

        fetch()
        comment = self.read(AcknowledgeBody)["comment"]

        def act(alert: Alert) -> Any:
            return acknowledge(by=self.actor, alert=alert, comment=comment)

        return self.change(fetch, act, AlertDocument)


class AlertHistory(ApiView):
    """`/alert-history`"""

    @listed("list_alert_history", TransitionDocument, HistoryQuery)
    def get(self, request: Request) -> Response:
        """Every time an alert fired or resolved, newest first, as far back as it is kept."""
        ids, rows = readable(self.actor, Right.VIEW), visible_transitions()
        if ids is not None:
            rows = rows.filter(tenant_id__in=ids)
        named = {"tenant": "tenant_id", "rule": "rule_id", "alert": "fingerprint", "severity": "severity"}
        return self.rows(rows.filter(**_filters(self.asked, named)), TransitionDocument, NUMBERED)


def _filters(asked: dict[str, Any], named: dict[str, str]) -> dict[str, Any]:
    return {column: asked[name] for name, column in named.items() if name in asked}
