"""Alerts: what fires and since when, what became of earlier ones, who is silenced, and by whom."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django import forms
from django.http import HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.pages.answers import FORM, POST, FormPage, attempt, go, page, show, try_action
from console.pages.forms import ActionForm
from console.pages.listing import listing
from console.requests import ConsoleRequest
from serving.control.alerts.access import (
    ALERTS_WHY,
    access_alert,
    access_silence,
    visible_alerts,
    visible_rules,
    visible_silences,
    visible_transitions,
)
from serving.control.alerts.actions import acknowledge as acknowledge_alert
from serving.control.alerts.actions import create_silence, end_silence
from serving.control.alerts.measures import Measure, measure_of
from serving.control.alerts.models import MAX_COMMENT_CHARS, Alert, AlertTransition
from serving.control.alerts.notify import ALERT_NAME
from serving.control.alerts.rules import condition_of
from tenants.access import require
from tenants.errors import Invalid
from tenants.models import Tenant
from tenants.roles import Right
from tenants.scoping import all_tenants

MAX_FIRING = 200
MAX_ROWS = 200
DURATIONS = (
    ("1", gettext_lazy("1 hour")),
    ("4", gettext_lazy("4 hours")),
    ("24", gettext_lazy("1 day")),
    ("168", gettext_lazy("7 days")),
)
"""Hours of a silence."""


@dataclass(frozen=True, slots=True)
class Row:
    """One alert as the list shows it."""

    alert: Alert
    measure: Measure
    may_acknowledge: bool
    may_silence: bool

    @property
    def details(self) -> dict[str, str]:
        return details_of(self.alert.labels)

    @property
    def is_quiet(self) -> bool:
        return bool(self.alert.quiet_by)


@dataclass(frozen=True, slots=True)
class Past:
    moved: AlertTransition

    @property
    def details(self) -> dict[str, str]:
        return details_of(self.moved.labels)


def details_of(labels: dict[str, str]) -> dict[str, str]:
    """What tells an alert apart besides its tenant and model, which have columns of their own. Pure."""
    return {name: value for name, value in labels.items() if name not in ("tenant_id", "model")}


class AcknowledgeForm(ActionForm):
    comment = forms.CharField(
        label=gettext_lazy("Comment"),
        required=False,
        max_length=MAX_COMMENT_CHARS,
        help_text=gettext_lazy("What you found or do: whoever looks next reads it."),
    )


class SilenceForm(ActionForm):
    matchers = forms.CharField(
        label=gettext_lazy("Alerts that meet all of these"),
        widget=forms.Textarea(attrs={"rows": 4, "spellcheck": "false"}),
        help_text=gettext_lazy(
            "One a line: label=value, label!=value, or a pattern as label=~one|two. Fewer lines silence more."
        ),
    )
    hours = forms.ChoiceField(label=gettext_lazy("How long"), choices=DURATIONS, initial="4")
    comment = forms.CharField(
        label=gettext_lazy("Why"),
        max_length=MAX_COMMENT_CHARS,
        help_text=gettext_lazy(
            "Shown beside the silence with your name. Alerts still fire and are listed here."
        ),
    )

    def values(self) -> dict[str, Any]:
        return {
            "matchers": [
                matcher_of(line) for line in self.cleaned_data["matchers"].splitlines() if line.strip()
            ],
            "ends_at": timezone.now() + timedelta(hours=int(self.cleaned_data["hours"])),
            "comment": self.cleaned_data["comment"],
        }

    def clean_matchers(self) -> str:
        typed: str = self.cleaned_data["matchers"]
        try:
            [matcher_of(line) for line in typed.splitlines() if line.strip()]
        except Invalid as error:
            raise forms.ValidationError(error.errors["matchers"]) from None
        return typed


def matcher_of(line: str) -> dict[str, str]:
    """`label=value` as the action takes it. Raises `Invalid`. Pure."""
    for operator in ("=~", "!~", "!=", "="):
        label, found, value = line.partition(operator)
        if found and not set(label) & set("=!~"):
            return {"label": label.strip(), "operator": operator, "value": value.strip()}
    raise Invalid({"matchers": _("“%(line)s” is not label=value.") % {"line": line.strip()[:60]}})


@page("alerts")
def index(request: ConsoleRequest) -> HttpResponse:
    return show(request, "pages/alerts.html", tab="firing", **_firing(request))


@page("alerts")
def state(request: ConsoleRequest) -> HttpResponse:
    """The list of what fires, read anew when the socket says that something moved, and now and then."""
    return show(request, "pages/alerts_state.html", **_firing(request))


@page("alerts")
def history(request: ConsoleRequest) -> HttpResponse:
    ids, rows = _tenant_ids(request), visible_transitions()
    if ids is not None:
        rows = rows.filter(tenant_id__in=ids)
    shown = listing(
        request, rows, sorts={"at": "id"}, default="-at", filters={"alert": "fingerprint", "rule": "rule_id"},
        max_counted=5000,
    )  # fmt: skip
    past = [Past(moved) for moved in shown.page.object_list]
    return show(request, "pages/alert_history.html", tab="history", listing=shown, rows=past)


@page("alerts")
def silences(request: ConsoleRequest) -> HttpResponse:
    now = timezone.now()
    rows = list(visible_silences().order_by("-ends_at")[:MAX_ROWS])
    shown = [(row, row.ends_at > now, _may(request, row.tenant_id)) for row in rows]
    may_create = _may(request, request.tenant.pk if request.tenant else None)
    return show(request, "pages/silences.html", tab="silences", rows=shown, may_create=may_create)


@page("alerts", FORM)
def acknowledge(request: ConsoleRequest, fingerprint: str) -> HttpResponse:
    alert = access_alert(request.actor, fingerprint, to_acknowledge=True)
    form = AcknowledgeForm(request.POST or None)
    if attempt(form, acknowledge_alert, by=request.actor, alert=alert) is not None:
        return go(request, reverse("alerts"), _("Acknowledged: it is not told again until it fires anew."))
    frame = FormPage(
        title=_("Acknowledge “%(name)s”") % {"name": alert.rule.name},
        submit=_("Acknowledge"),
        back=reverse("alerts"),
        intro=_("You look at it. Channels are not told again of what goes on; its end is told."),
    )
    return frame.show(request, form)


@page("alerts", FORM)
def silence(request: ConsoleRequest, fingerprint: str = "") -> HttpResponse:
    """A silence of the chosen tenant or the platform; of one alert it is filled in with what tells that apart."""
    alert = access_alert(request.actor, fingerprint) if fingerprint else None
    tenant = _silencing(request, alert)
    require(request.actor, Right.MANAGE_ALERTS, tenant.pk if tenant else None)
    form = SilenceForm(request.POST or None, initial={"matchers": _matchers(alert)})
    if attempt(form, create_silence, by=request.actor, tenant=tenant) is not None:
        return go(request, reverse("silences"), _("Silenced. It ends by itself."))
    frame = FormPage(
        title=_("Silence alerts"),
        submit=_("Silence"),
        back=reverse("alerts"),
        intro=_("Of %(name)s only.") % {"name": tenant.name}
        if tenant
        else _("Of every tenant and the platform."),
    )
    return frame.show(request, form)


@page("alerts", POST)
def silence_end(request: ConsoleRequest, silence_id: str) -> HttpResponse:
    row = access_silence(request.actor, silence_id, Right.MANAGE_ALERTS)
    said = _("Ended: its alerts are told again.")
    return try_action(request, reverse("silences"), said, end_silence, silence=row)


def _firing(request: ConsoleRequest) -> dict[str, Any]:
    with all_tenants(ALERTS_WHY):
        found = visible_alerts(_tenant_ids(request)).exclude(state="resolved").order_by("-fired_at", "-since")
        rows = [_row(request, alert) for alert in found[:MAX_FIRING]]
    firing = [row for row in rows if row.alert.state == "firing"]
    return {
        "firing": firing,
        "pending": [row for row in rows if row.alert.state == "pending"],
        "rule_count": visible_rules().count(),
    }


def _row(request: ConsoleRequest, alert: Alert) -> Row:
    return Row(
        alert,
        measure_of(condition_of(alert.rule.condition)),
        alert.state == "firing" and not alert.is_acknowledged and _may(request, alert.rule.tenant_id),
        _may(request, alert.tenant_id) or _may(request, None),
    )


def _tenant_ids(request: ConsoleRequest) -> list[str] | None:
    """Whose alerts are shown: the chosen tenant's; else everybody's whom the person sees."""
    if request.tenant is not None:
        return [request.tenant.pk]
    return None if request.actor.sees_platform else list(request.actor.tenant_ids)


def _may(request: ConsoleRequest, tenant_id: str | None) -> bool:
    return request.actor.has(Right.MANAGE_ALERTS, tenant_id)


def _silencing(request: ConsoleRequest, alert: Alert | None) -> Tenant | None:
    """Whose the silence is to be: the platform's where the person may; else the alert's tenant's, or the chosen one's."""
    if alert is not None:
        return None if _may(request, None) else alert.tenant
    return request.tenant


def _matchers(alert: Alert | None) -> str:
    if alert is None:
        return ""
    lines = [f"{ALERT_NAME}={alert.rule.name}", *(f"{name}={value}" for name, value in alert.labels.items())]
    return "\n".join(lines)
