"""Alert rules: what is watched, and how to change it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from django import forms
from django.http import HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.pages.answers import FORM, POST, FormPage, attempt, go, page, show, try_action
from console.pages.forms import ActionForm, ConfirmForm, FigureField
from console.requests import ConsoleRequest
from serving.control.alerts.access import access_rule, visible_rules
from serving.control.alerts.actions import create_rule, delete_rule, facts_of, update_rule
from serving.control.alerts.facts import FACTS
from serving.control.alerts.measures import Measure, measure_of
from serving.control.alerts.models import AlertRule
from serving.control.alerts.rules import Condition, Threshold, condition_of
from serving.telemetry.metrics import METRICS
from tenants.access import require
from tenants.roles import Right
from tenants.staleness import mark_of

SEVERITIES = (
    ("info", gettext_lazy("info: shown, rarely told")),
    ("warning", gettext_lazy("warning: look at it today")),
    ("critical", gettext_lazy("critical: somebody has to act now")),
)
COMPARISONS = (("above", gettext_lazy("above")), ("below", gettext_lazy("below")))


@dataclass(frozen=True, slots=True)
class Row:
    rule: AlertRule
    condition: Condition | None
    """None for one that a newer version wrote."""
    may_change: bool

    @property
    def kind(self) -> str:
        return type(self.condition).__name__.lower()

    @property
    def measure(self) -> Measure:
        return measure_of(self.condition) if self.condition else Measure("", None)


class RuleForm(ActionForm):
    """What every rule has, whatever it watches."""

    name = forms.CharField(label=gettext_lazy("Name"), max_length=100)
    summary = forms.CharField(
        label=gettext_lazy("What to do"),
        required=False,
        max_length=500,
        help_text=gettext_lazy("One sentence for whoever is told: what it means, what to look at first."),
    )
    severity = forms.ChoiceField(
        label=gettext_lazy("Severity"),
        choices=SEVERITIES,
        initial="warning",
        help_text=gettext_lazy("While a critical alert fires, milder ones of the same topic are not told."),
    )
    for_s = FigureField(
        label=gettext_lazy("True for"),
        initial=30,
        min_value=0,
        help_text=gettext_lazy(
            "So long it must be true before it fires: longer means later, and fewer false alarms."
        ),
    )
    keep_firing_s = FigureField(
        label=gettext_lazy("Untrue for"),
        initial=60,
        min_value=0,
        help_text=gettext_lazy(
            "So long it must be untrue before it is over: short waits make it come and go."
        ),
    )
    units: ClassVar[dict[str, Any]] = {"for_s": "s", "keep_firing_s": "s", "window_s": "s"}


class ThresholdForm(RuleForm):
    """A rule that compares one metric with a value."""

    metric = forms.ChoiceField(
        label=gettext_lazy("Metric"),
        help_text=gettext_lazy(
            "Names end with their unit; shares are 0–1. Each tenant × model is looked at by itself."
        ),
    )
    comparison = forms.ChoiceField(label=gettext_lazy("Fires when it is"), choices=COMPARISONS)
    value = FigureField(label=gettext_lazy("this value"))
    window_s = forms.IntegerField(
        label=gettext_lazy("Over the last"),
        initial=60,
        help_text=gettext_lazy("10 seconds to 7 days. A longer window is calmer and tells later."),
    )
    min_requests = forms.IntegerField(
        label=gettext_lazy("With at least so many requests"),
        initial=20,
        min_value=1,
        help_text=gettext_lazy("With fewer there is no evidence, and nothing fires."),
    )
    field_order = (
        "name",
        "metric",
        "comparison",
        "value",
        "window_s",
        "min_requests",
        "for_s",
        "keep_firing_s",
    )

    def __init__(self, *args: Any, names: list[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["metric"].choices = [(name, name) for name in names]  # type: ignore[attr-defined]

    def values(self) -> dict[str, Any]:
        typed = dict(self.cleaned_data)
        names = ("metric", "comparison", "value", "window_s", "min_requests")
        condition = {"type": "threshold"} | {name: typed.pop(name) for name in names}
        return typed | {"condition": condition}


@page("alerts")
def index(request: ConsoleRequest) -> HttpResponse:
    rows = [_row(request, rule) for rule in visible_rules()]
    may_create = request.actor.has(Right.MANAGE_ALERTS, request.tenant.pk if request.tenant else None)
    return show(request, "pages/alert_rules.html", tab="rules", rows=rows, may_create=may_create)


@page("alerts", FORM)
def create(request: ConsoleRequest) -> HttpResponse:
    """Of the chosen tenant; without a choice, of the platform."""
    require(request.actor, Right.MANAGE_ALERTS, request.tenant.pk if request.tenant else None)
    form = ThresholdForm(request.POST or None, names=_names(request.tenant is None))
    group_by = ["tenant_id", "model"]
    more = {"group_by": group_by} if form.data.get("metric") not in FACTS else {}
    if attempt(form, create_rule, by=request.actor, tenant=request.tenant, **more) is not None:
        return go(request, reverse("alert_rules"), _("Watched from now on."))
    of = request.tenant.name if request.tenant else _("the platform: over every tenant")
    frame = FormPage(
        title=_("New rule of %(name)s") % {"name": of}, submit=_("Watch it"), back=reverse("alert_rules")
    )
    return frame.show(request, form)


@page("alerts", FORM)
def edit(request: ConsoleRequest, rule_id: str) -> HttpResponse:
    rule = access_rule(request.actor, rule_id, Right.MANAGE_ALERTS)
    facts = facts_of(rule)
    form = _form(request, rule, facts)
    form.remember(mark_of(facts))
    if attempt(form, update_rule, by=request.actor, rule=rule) is not None:
        return go(request, reverse("alert_rules"), _("Saved."))
    frame = FormPage(
        title=_("Change %(name)s") % {"name": rule.name},
        submit=_("Save"),
        back=reverse("alert_rules"),
        intro=_("What fires under a rule whose condition changes is over, and told so."),
    )
    return frame.show(request, form)


@page("alerts", POST)
def switch(request: ConsoleRequest, rule_id: str) -> HttpResponse:
    """On or off: what fires under a rule that is switched off is over."""
    rule = access_rule(request.actor, rule_id, Right.MANAGE_ALERTS)
    is_on = request.POST.get("to") == "on"
    said = _("It is watched again.") if is_on else _("Switched off: nothing is watched by it.")
    return try_action(request, reverse("alert_rules"), said, update_rule, rule=rule, is_enabled=is_on)


@page("alerts", FORM)
def delete(request: ConsoleRequest, rule_id: str) -> HttpResponse:
    rule = access_rule(request.actor, rule_id, Right.MANAGE_ALERTS)
    form = ConfirmForm(rule.name, request.POST or None)

    def delete_confirmed() -> bool:
        delete_rule(by=request.actor, rule=rule)
        return True

    if attempt(form, delete_confirmed):
        return go(request, reverse("alert_rules"), _("The rule is deleted."))
    frame = FormPage(
        title=_("Delete %(name)s") % {"name": rule.name},
        submit=_("Delete rule"),
        back=reverse("alert_rules"),
        is_danger=True,
    )
    return frame.show(request, form)


def _form(request: ConsoleRequest, rule: AlertRule, facts: dict[str, Any]) -> RuleForm:
    condition = _readable(rule)
    if not isinstance(condition, Threshold):
        return RuleForm(request.POST or None, initial=facts)
    values = {name: getattr(condition, name) for name in condition.__struct_fields__}
    return ThresholdForm(request.POST or None, initial=facts | values, names=_names(rule.tenant_id is None))


def _names(is_of_platform: bool) -> list[str]:
    """Metrics, and facts that are known of whose rule it is."""
    facts = [name for name, fact in FACTS.items() if is_of_platform or "tenant_id" in fact.labels]
    return sorted(METRICS) + facts


def _row(request: ConsoleRequest, rule: AlertRule) -> Row:
    return Row(rule, _readable(rule), request.actor.has(Right.MANAGE_ALERTS, rule.tenant_id))


def _readable(rule: AlertRule) -> Condition | None:
    try:
        return condition_of(rule.condition)
    except ValueError:
        return None
