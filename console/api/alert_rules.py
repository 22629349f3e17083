"""Alert rules: what is watched, over which labels, and how long it has to be true."""

from __future__ import annotations

from typing import Any

from django.urls import reverse
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.alerts import SEVERITIES
from console.api.fields import Body, Document, Flag, Moment, Number, Ref, Text
from console.api.readable import readable
from console.api.schema import Page, Rehearsed, changed, gone, listed, made, shown
from console.api.trails import named_trail, trail_field
from console.api.views import ApiView
from serving.control.alerts.access import access_rule, visible_rules
from serving.control.alerts.actions import create_rule, delete_rule, update_rule
from serving.control.alerts.checks import MAX_VALUE_CHARS
from serving.control.alerts.models import MAX_COMMENT_CHARS, NAME_CHARS, AlertRule
from serving.control.alerts.rules import MAX_FOR_S
from tenants.roles import Right

CONDITION = (
    "By its `type`: `threshold` (`metric`, `comparison`, `value`, `window_s`, `min_requests`), `ratio` (`part`, "
    "`whole`, `comparison`, `value`, …), `absence` (`window_s`, `seen_s`) or `burn_rate` (`objective`, `pairs` of "
    "`long_s`, `short_s`, `factor`, `min_requests`)."
)


class RuleDocument(Document):
    id = serializers.CharField()
    tenant = Ref("tnt_", allow_null=True, help_text="Whose it is; null: the platform's, over every tenant.")
    name = serializers.CharField()
    summary = serializers.CharField()
    severity = serializers.ChoiceField(choices=SEVERITIES)
    condition = serializers.DictField(help_text=CONDITION)
    group_by = serializers.ListField(child=serializers.CharField(), source="by")
    only = serializers.DictField(child=serializers.CharField())
    labels = serializers.DictField(child=serializers.CharField())
    for_s = serializers.FloatField()
    keep_firing_s = serializers.FloatField()
    is_enabled = serializers.BooleanField()
    shipped_as = serializers.CharField(help_text="The shipped rule it was installed as; empty for others.")
    created_by = serializers.CharField()
    created_at = Moment()
    updated_at = Moment()


class RuleChange(Body):
    name = Text(max_length=NAME_CHARS, required=False)
    summary = Text(max_length=MAX_COMMENT_CHARS, allow_blank=True, required=False)
    severity = serializers.ChoiceField(choices=SEVERITIES, required=False)
    condition = serializers.DictField(required=False, help_text=CONDITION)
    group_by = serializers.ListField(
        child=Text(max_length=40),
        max_length=5,
        required=False,
        help_text="Labels of metrics: each of their values is an alert of its own. Facts have their own.",
    )
    only = serializers.DictField(
        child=Text(max_length=MAX_VALUE_CHARS),
        required=False,
        help_text="Labels that must have these values.",
    )
    labels = serializers.DictField(
        child=Text(max_length=MAX_VALUE_CHARS), required=False, help_text="Added to its alerts'."
    )
    for_s = Number(
        min_value=0, max_value=MAX_FOR_S, required=False, help_text="So long it must be true to fire."
    )
    keep_firing_s = Number(
        min_value=0, max_value=MAX_FOR_S, required=False, help_text="So long it must be untrue to resolve."
    )
    is_enabled = Flag(required=False)


class RuleBody(RuleChange):
    tenant = trail_field()
    name = Text(max_length=NAME_CHARS)
    condition = serializers.DictField(help_text=CONDITION)


class OwnedQuery(Page):
    tenant = serializers.CharField(required=False, max_length=40)


class Rules(ApiView):
    """`/alert-rules`"""

    @listed("list_alert_rules", RuleDocument, OwnedQuery)
    def get(self, request: Request) -> Response:
        """Rules of the tenants you may see, and of the platform for whoever sees that, newest first."""
        return self.rows(owned(self, visible_rules()), RuleDocument)

    @made("create_alert_rule", RuleBody, RuleDocument, Rehearsed)
    def post(self, request: Request) -> Response:
        """Watch something. A tenant's admins watch the tenant's own requests."""
        values = self.read(RuleBody)
        tenant = named_trail(self, values.pop("tenant"), Right.MANAGE_ALERTS)
        return self.make(
            lambda: create_rule(by=self.actor, tenant=tenant, **values), RuleDocument, address_of
        )


class OneRule(ApiView):
    """`/alert-rules/{id}`"""

    def to_change(self, rule_id: str) -> AlertRule:
        return access_rule(self.actor, rule_id, Right.MANAGE_ALERTS)

    @shown("get_alert_rule", RuleDocument)
    def get(self, request: Request, rule_id: str) -> Response:
        """One rule."""
        return self.one(access_rule(self.actor, rule_id), RuleDocument)

    @changed("change_alert_rule", RuleChange, RuleDocument, Rehearsed)
    def patch(self, request: Request, rule_id: str) -> Response:
        """Change a rule. What fires under a condition that changes, or when it is switched off, ends."""
        self.to_change(rule_id)
        values = self.read(RuleChange)

        def act(rule: AlertRule) -> Any:
            return update_rule(by=self.actor, rule=rule, **values)

        return self.change(lambda: self.to_change(rule_id), act, RuleDocument)

    @gone("delete_alert_rule", Rehearsed)
    def delete(self, request: Request, rule_id: str) -> Response:
        """Watch it no longer. One that fires is switched off first, so that its alerts are told to be over."""

        def act(rule: AlertRule) -> Any:
            return delete_rule(by=self.actor, rule=rule)

        return self.remove(lambda: self.to_change(rule_id), act, RuleDocument)


def owned(view: ApiView, rows: Any) -> Any:
    """Of the tenants in which the actor may look; of one where that is asked for."""
    ids = readable(view.actor, Right.VIEW)
    if ids is not None:
        rows = rows.filter(tenant_id__in=ids)
    return rows.filter(tenant_id=view.asked["tenant"]) if "tenant" in view.asked else rows


def address_of(rule: AlertRule) -> str:
    return reverse("api_alert_rule", args=[rule.pk])
