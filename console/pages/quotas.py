"""Quotas: who may take how much, how much is taken, and how to change it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from django import forms
from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import Case, CharField, F, OuterRef, QuerySet, When
from django.db.models.functions import JSONObject
from django.http import HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.pages.answers import FORM, FormPage, attempt, go, page, show
from console.pages.forms import ActionForm, ConfirmForm, FigureField
from console.pages.listing import listing
from console.requests import ConsoleRequest
from console.templatetags.figures import amount
from serving.control.catalog.access import visible_models
from serving.control.catalog.models import Model
from serving.control.quotas.access import access_quota, visible_quotas
from serving.control.quotas.accounts import Standing, standings_or_none
from serving.control.quotas.actions import create_quota, delete_quota, facts_of, update_quota
from serving.control.quotas.models import Quota, ResourceChoice, WindowChoice
from serving.control.quotas.watching import standing_now
from tenants.access import access_tenant_by_slug
from tenants.models import ApiKey
from tenants.roles import Right
from tenants.scoping import tenant_scope
from tenants.staleness import mark_of

RESOURCE_WORDS = {
    ResourceChoice.REQUESTS: gettext_lazy("Requests"),
    ResourceChoice.TOKENS: gettext_lazy("Tokens"),
    ResourceChoice.DEVICE_US: gettext_lazy("Device time (ms)"),
    ResourceChoice.COST_MICRO: gettext_lazy("Money"),
    ResourceChoice.CONCURRENCY: gettext_lazy("Requests in flight"),
    ResourceChoice.QUEUE: gettext_lazy("Requests waiting at a replica"),
}
WINDOW_WORDS = {
    WindowChoice.SECOND: gettext_lazy("per second"),
    WindowChoice.MINUTE: gettext_lazy("per minute"),
    WindowChoice.HOUR: gettext_lazy("per hour"),
    WindowChoice.DAY: gettext_lazy("per day"),
    WindowChoice.MONTH: gettext_lazy("per month"),
}
UNITS = {ResourceChoice.DEVICE_US: 1000, ResourceChoice.COST_MICRO: 1_000_000}
"""Base units in the unit people type."""
ONLY_FOR = {
    "window": ("requests", "tokens", "device_us", "cost_micro"),
    "burst": ("requests", "tokens"),
    "guaranteed": ("requests", "concurrency"),
    "soft_percent": ("requests", "tokens", "device_us", "cost_micro"),
    "observe_only": ("requests", "tokens", "device_us", "cost_micro", "concurrency"),
}
"""What is asked of these resources alone: of the others it is not shown, and what stands there says nothing."""
PAGE_ROWS = 25


def what_of(quota: Quota) -> str:
    """What is limited, and in which window. Amounts carry their unit beside it, so it names none."""
    resource = ResourceChoice(quota.resource)
    word = _("Device time") if resource is ResourceChoice.DEVICE_US else str(RESOURCE_WORDS[resource])
    if not quota.window:
        return word
    window = WINDOW_WORDS[WindowChoice(quota.window)]
    return _("%(resource)s %(window)s") % {"resource": word, "window": window}


def with_limits(keys: QuerySet[ApiKey]) -> QuerySet[ApiKey]:
    """Each key with its quotas, of the same question to the database; `limits_of` says them."""
    quotas = Quota.objects.annotate(counted_as=_limited_as("key_id", "key__first_id"))
    facts = JSONObject(
        resource="resource", window="window", limit="limit", observe_only="observe_only", model="model__name"
    )
    found = quotas.filter(counted_as=OuterRef("counted_as")).order_by("pk").values(facts=facts)
    return keys.annotate(counted_as=_limited_as("pk", "first_id")).annotate(quota_facts=ArraySubquery(found))


def _limited_as(own: str, first: str) -> Case:
    """`ApiKey.limited_as`, in the database."""
    return Case(When(**{first: ""}, then=F(own)), default=F(first), output_field=CharField())


def limits_of(key: ApiKey) -> list[str]:
    """What limits a key that was read `with_limits`, in words."""
    return [_limit_line(dict(facts)) for facts in vars(key)["quota_facts"]]


def _limit_line(facts: dict[str, Any]) -> str:
    model = facts.pop("model")
    quota = Quota(**facts)
    said = {"what": what_of(quota), "limit": amount(quota.limit, quota.resource)}
    more = [model] if model else []
    more += [_("counts only")] if quota.observe_only else []
    return " · ".join([_("%(what)s: %(limit)s") % said, *more])


@dataclass(frozen=True, slots=True)
class Row:
    """One quota as the list shows it; amounts in base units, None where nothing is known."""

    quota: Quota
    used: int | None
    reserved: int | None
    ends_at: datetime | None
    may_change: bool

    @property
    def has_figures(self) -> bool:
        return (self.used, self.reserved) != (None, None)

    @property
    def share(self) -> float:
        """Used and reserved of the limit, at most 1."""
        return min(1.0, ((self.used or 0) + (self.reserved or 0)) / self.quota.limit)

    @property
    def used_percent(self) -> int:
        return min(100, round(100 * (self.used or 0) / self.quota.limit))

    @property
    def reserved_percent(self) -> int:
        return min(100 - self.used_percent, round(100 * (self.reserved or 0) / self.quota.limit))

    @property
    def what(self) -> str:
        return what_of(self.quota)


class LimitForm(ActionForm):
    """What may be changed of a quota."""

    limit = FigureField(
        label=gettext_lazy("Limit"),
        help_text=gettext_lazy(
            "Device time in milliseconds, money in units of the currency. Of requests waiting at a replica: so many at each replica, the next is refused at once."
        ),
    )
    burst = forms.IntegerField(
        label=gettext_lazy("Burst"),
        required=False,
        help_text=gettext_lazy(
            "Per second and minute: so much may come at once. Empty: as much as the limit."
        ),
    )
    guaranteed = forms.IntegerField(
        label=gettext_lazy("Guaranteed"),
        required=False,
        help_text=gettext_lazy(
            "Of a model's requests per second or in flight: so much of what its tenants share is always there."
        ),
    )
    soft_percent = forms.IntegerField(
        label=gettext_lazy("Threshold"),
        required=False,
        help_text=gettext_lazy(
            "Per hour, day and month: an event is recorded once so much of the budget is used."
        ),
    )
    observe_only = forms.BooleanField(
        label=gettext_lazy("Count only, refuse nothing"), required=False, initial=False
    )
    units: ClassVar[dict[str, Any]] = {"soft_percent": "%"}
    resource = ""

    def narrow(self, resource: str) -> None:
        """To what can be changed of a quota on this."""
        self.resource = resource
        for name in [name for name, resources in ONLY_FOR.items() if resource not in resources]:
            self.fields.pop(name, None)

    def values(self) -> dict[str, Any]:
        typed = dict(self.cleaned_data)
        resource = typed.get("resource", self.resource)
        typed["limit"] = round(typed["limit"] * UNITS.get(resource, 1))
        return typed


class QuotaForm(LimitForm):
    """A new quota. Each of key and model left open makes it wider."""

    resource = forms.ChoiceField(label=gettext_lazy("What"), choices=list(RESOURCE_WORDS.items()))  # type: ignore[assignment]
    window = forms.ChoiceField(
        label=gettext_lazy("Window"),
        choices=list(WINDOW_WORDS.items()),
        required=False,
        initial="day",
        help_text=gettext_lazy("Hours, days and months are those of the tenant's time zone."),
    )
    key: forms.Field = forms.ModelChoiceField(
        label=gettext_lazy("API key"),
        queryset=None,
        required=False,
        empty_label=gettext_lazy("All keys together"),
    )
    model = forms.ModelChoiceField(
        label=gettext_lazy("Model"),
        queryset=Model.objects.none(),
        required=False,
        empty_label=gettext_lazy("All models together"),
    )
    field_order = (
        "resource",
        "limit",
        "window",
        "key",
        "model",
        "burst",
        "guaranteed",
        "soft_percent",
        "observe_only",
    )

    def __init__(self, keys: Any, models: Any, *args: Any, needs_key: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, resources in ONLY_FOR.items():
            self.fields[name].only_for = f"resource={' '.join(resources)}"  # type: ignore[attr-defined]
        self.fields["key"].queryset = keys  # type: ignore[attr-defined]
        self.fields["model"].queryset = models  # type: ignore[attr-defined]
        if needs_key:
            self.fields["key"].required = True
            self.fields["key"].empty_label = None  # type: ignore[attr-defined]

    def values(self) -> dict[str, Any]:
        typed = super().values()
        nothing = {"window": "", "observe_only": False}
        return typed | {
            name: nothing.get(name)
            for name, resources in ONLY_FOR.items()
            if typed["resource"] not in resources
        }


@page("quotas")
def index(request: ConsoleRequest) -> HttpResponse:
    shown = listing(
        request, visible_quotas(), sorts={"tenant": "tenant__slug"}, default="tenant", page_rows=PAGE_ROWS
    )
    quotas = list(shown.page.object_list)
    standings = standings_or_none(quotas)
    now = timezone.now()
    rows = [_row(request, quota, standings, now) for quota in quotas]
    may_create = request.tenant is not None and request.actor.has(Right.MANAGE_KEYS, request.tenant.pk)
    return show(
        request,
        "pages/quotas.html",
        rows=rows,
        shown=shown,
        is_blind=standings is None,
        may_create=may_create,
        is_operator=request.actor.has(Right.MANAGE_QUOTAS),
    )


@page("quotas", FORM)
def create(request: ConsoleRequest, slug: str) -> HttpResponse:
    tenant = access_tenant_by_slug(request.actor, slug, Right.MANAGE_KEYS)
    with tenant_scope(tenant.pk):
        # One that was rolled has its limits in common with its successor, which stands for both.
        keys = ApiKey.objects.filter(revoked_at__isnull=True, replaced_by__isnull=True)
    form = QuotaForm(
        keys,
        visible_models(request.actor, tenant.pk),
        request.POST or None,
        needs_key=not request.actor.has(Right.MANAGE_QUOTAS),
    )
    if attempt(form, create_quota, by=request.actor, tenant=tenant) is not None:
        return go(request, reverse("quotas"), _("Set. Every gateway follows within a second."))
    frame = FormPage(
        title=_("New quota for %(name)s") % {"name": tenant.name},
        submit=_("Set quota"),
        back=reverse("quotas"),
        intro=_("Of several quotas that bind a request all must allow it."),
    )
    return frame.show(request, form)


@page("quotas", FORM)
def edit(request: ConsoleRequest, quota_id: str) -> HttpResponse:
    quota = access_quota(request.actor, quota_id, to_change=True)
    facts = facts_of(quota)
    form = LimitForm(
        request.POST or None, initial=facts | {"limit": quota.limit / UNITS.get(_what(quota), 1)}
    )
    form.narrow(quota.resource)
    form.remember(mark_of(facts))
    if attempt(form, update_quota, by=request.actor, quota=quota) is not None:
        return go(request, reverse("quotas"), _("Saved. Every gateway follows within a second."))
    frame = FormPage(
        title=_("Change %(name)s") % {"name": str(quota)}, submit=_("Save"), back=reverse("quotas")
    )
    return frame.show(request, form)


@page("quotas", FORM)
def delete(request: ConsoleRequest, quota_id: str) -> HttpResponse:
    quota = access_quota(request.actor, quota_id, to_change=True)
    form = ConfirmForm(quota.name, request.POST or None)

    def delete_confirmed() -> bool:
        delete_quota(by=request.actor, quota=quota)
        return True

    if attempt(form, delete_confirmed):
        return go(request, reverse("quotas"), _("The quota is lifted."))
    frame = FormPage(
        title=_("Lift %(name)s") % {"name": str(quota)},
        submit=_("Lift quota"),
        back=reverse("quotas"),
        is_danger=True,
    )
    return frame.show(request, form)


def _row(request: ConsoleRequest, quota: Quota, known: dict[str, Standing] | None, now: datetime) -> Row:
    return Row(quota, *standing_now(quota, known, now), _may_change(request, quota))


def _may_change(request: ConsoleRequest, quota: Quota) -> bool:
    if request.actor.has(Right.MANAGE_QUOTAS):
        return True
    is_own = quota.key_id is not None and not quota.is_of_platform
    return is_own and request.actor.has(Right.MANAGE_KEYS, quota.tenant_id)


def _what(quota: Quota) -> ResourceChoice:
    return ResourceChoice(quota.resource)
