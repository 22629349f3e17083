"""SLA profiles: what is promised, who gets it, and what a change would do."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.pages.answers import FORM, Crumbs, FormPage, attempt, go, page, show
from console.pages.forms import ActionForm, ConfirmForm, FigureField
from console.requests import ConsoleRequest
from console.templatetags.figures import with_unit
from serving.control.catalog.models import Model
from serving.control.profiles.access import access_binding, access_profile, visible_bindings, visible_profiles
from serving.control.profiles.actions import (
    bind_profile,
    create_profile,
    delete_profile,
    facts_of,
    unbind_profile,
    update_profile,
)
from serving.control.profiles.models import LatePolicyChoice, ProfileBinding, SlaClassChoice, SlaProfile
from serving.profiles import ENDPOINTS
from tenants.access import require, scope_of
from tenants.models import Tenant
from tenants.roles import Right
from tenants.staleness import mark_of

CLASS_WORDS = {
    SlaClassChoice.INTERACTIVE: gettext_lazy("Interactive: earliest deadline first, before everything else"),
    SlaClassChoice.STANDARD: gettext_lazy("Standard: fair shares of the device by weight"),
    SlaClassChoice.BATCH: gettext_lazy("Batch: fills what the others leave free, and never starves"),
}
POLICY_WORDS = {
    LatePolicyChoice.REFUSE: gettext_lazy("Refuse at once, with the numbers and a time to retry"),
    LatePolicyChoice.DEGRADE: gettext_lazy(
        "Let the version’s fallback answer; without one, let it wait in a lower class"
    ),
    LatePolicyChoice.RUN: gettext_lazy("Run it anyway"),
}


class ProfileForm(ActionForm):
    """Every field says its unit and what it does to the answers."""

    units = {
        "target_p95_ms": "ms",
        "deadline_ms": "ms",
        "max_batch_size": gettext_lazy("rows"),
        "max_wait_ms": "ms",
        "weight": "×",
        "max_queue": gettext_lazy("requests"),
    }

    name = forms.CharField(label=gettext_lazy("Name"), max_length=63)
    description = forms.CharField(label=gettext_lazy("Description"), max_length=200, required=False)
    sla_class = forms.ChoiceField(
        label=gettext_lazy("Class"),
        choices=list(CLASS_WORDS.items()),
        widget=forms.RadioSelect,
        initial="standard",
        help_text=gettext_lazy("Who goes first when requests wait."),
    )
    target_p95_ms = FigureField(
        label=gettext_lazy("p95 target"),
        initial=200.0,
        help_text=gettext_lazy(
            "Slower answers count as broken promises. Running batches are kept short enough for the tightest target in use."
        ),
    )
    deadline_ms = FigureField(
        label=gettext_lazy("Deadline"),
        initial=2000.0,
        help_text=gettext_lazy(
            "What cannot be answered by then is handled by the policy below, the moment it arrives."
        ),
    )
    late_policy = forms.ChoiceField(
        label=gettext_lazy("If the deadline cannot be met"),
        choices=list(POLICY_WORDS.items()),
        widget=forms.RadioSelect,
        initial="refuse",
    )
    max_batch_size = forms.IntegerField(
        label=gettext_lazy("Largest batch"),
        initial=32,
        help_text=gettext_lazy(
            "A ceiling. Larger batches give more throughput and longer answers for everybody inside."
        ),
    )
    max_wait_ms = FigureField(
        label=gettext_lazy("Wait for companions, at most"),
        initial=0.0,
        help_text=gettext_lazy(
            "0: an idle device starts at once, companions are found while it is busy. More trades latency for fuller batches."
        ),
    )
    weight = FigureField(
        label=gettext_lazy("Weight"),
        initial=1.0,
        help_text=gettext_lazy(
            "Share of device time against others of the same class: 2 gets twice what 1 gets."
        ),
    )
    max_queue = forms.IntegerField(
        label=gettext_lazy("Queue limit"),
        initial=1024,
        help_text=gettext_lazy("Requests beyond it are refused at once with 429 queue_full."),
    )


class BindingForm(ActionForm):
    """Each field left on “every” makes the binding wider; the narrowest one wins."""

    tenant = forms.ModelChoiceField(
        label=gettext_lazy("Tenant"),
        queryset=Tenant.objects.none(),
        required=False,
        empty_label=gettext_lazy("Every tenant"),
    )
    model = forms.ModelChoiceField(
        label=gettext_lazy("Model"),
        queryset=Model.objects.none(),
        required=False,
        empty_label=gettext_lazy("Every model"),
    )
    endpoint = forms.ChoiceField(
        label=gettext_lazy("Endpoint"),
        required=False,
        choices=[("", gettext_lazy("Every endpoint")), *((name, name) for name in ENDPOINTS)],
        help_text=gettext_lazy(
            "The narrowest binding wins: tenant and model before tenant, tenant before model, then the platform's default."
        ),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["tenant"].queryset = Tenant.objects.all()  # type: ignore[attr-defined]
        self.fields["model"].queryset = Model.objects.all()  # type: ignore[attr-defined]

    def values(self) -> dict[str, Any]:
        return {**self.cleaned_data, "endpoint": self.cleaned_data["endpoint"] or None}


def _bindings(request: ConsoleRequest, **wanted: str) -> list[ProfileBinding]:
    with scope_of(request.actor):
        return list(visible_bindings(request.actor, **wanted))


@page("profiles")
def index(request: ConsoleRequest) -> HttpResponse:
    bindings = _bindings(request)
    profiles = list(visible_profiles(request.actor).order_by("target_p95_ms", "name"))
    rows = [(profile, [b for b in bindings if b.profile_id == profile.pk]) for profile in profiles]
    return show(
        request, "pages/profiles.html", rows=rows, may_manage=request.actor.has(Right.MANAGE_PROFILES)
    )


@page("profiles")
def detail(request: ConsoleRequest, profile_id: str) -> HttpResponse:
    profile = access_profile(request.actor, profile_id)
    bindings = _bindings(request, profile=profile.pk)
    return show(
        request,
        "pages/profile.html",
        profile=profile,
        bindings=bindings,
        class_word=CLASS_WORDS.get(SlaClassChoice(profile.sla_class)),
        policy_word=POLICY_WORDS.get(LatePolicyChoice(profile.late_policy)),
        may_manage=request.actor.has(Right.MANAGE_PROFILES),
        crumbs=_crumbs(),
    )


@page("profiles", FORM)
def create(request: ConsoleRequest) -> HttpResponse:
    require(request.actor, Right.MANAGE_PROFILES)
    form = ProfileForm(request.POST or None)
    profile = attempt(form, create_profile, by=request.actor)
    if profile is not None:
        return go(request, _address(profile), _("The profile exists; bind it to whoever should get it."))
    return FormPage(
        title=_("New SLA profile"), submit=_("Create profile"), back=reverse("profiles"), crumbs=_crumbs()
    ).show(request, form)


@page("profiles", FORM)
def edit(request: ConsoleRequest, profile_id: str) -> HttpResponse:
    """What changes is shown once more, beside who is affected, before it is saved."""
    profile = access_profile(request.actor, profile_id, Right.MANAGE_PROFILES)
    form = ProfileForm(request.POST or None, initial=facts_of(profile))
    form.remember(mark_of(facts_of(profile)))
    frame = FormPage(
        title=_("Edit %(name)s") % {"name": profile.name},
        submit=_("Review the change"),
        back=_address(profile),
        crumbs=[*_crumbs(), (profile.name, _address(profile))],
        template="pages/profile_edit.html",
    )
    if "confirmed" in request.POST:
        if attempt(form, update_profile, by=request.actor, profile=profile) is not None:
            return go(request, _address(profile), _("Saved. Every gateway follows within a second."))
    elif form.is_bound and form.is_valid():
        changes = _changes(profile, form)
        if not changes:
            return go(request, _address(profile))
        return frame.show(
            request,
            form,
            changes=changes,
            affected=_bindings(request, profile=profile.pk),
        )
    return frame.show(request, form)


@page("profiles", FORM)
def delete(request: ConsoleRequest, profile_id: str) -> HttpResponse:
    profile = access_profile(request.actor, profile_id, Right.MANAGE_PROFILES)
    form = ConfirmForm(profile.name, request.POST or None)

    def delete_confirmed() -> bool:
        delete_profile(by=request.actor, profile=profile)
        return True

    if attempt(form, delete_confirmed):
        return go(request, reverse("profiles"), _("The profile is gone."))
    title = _("Delete %(name)s") % {"name": profile.name}
    return FormPage(title=title, submit=_("Delete"), back=_address(profile), is_danger=True).show(
        request, form
    )


@page("profiles", FORM)
def bind(request: ConsoleRequest, profile_id: str) -> HttpResponse:
    profile = access_profile(request.actor, profile_id, Right.MANAGE_PROFILES)
    form = BindingForm(request.POST or None)
    if attempt(form, bind_profile, by=request.actor, profile=profile) is not None:
        return go(request, _address(profile), _("Bound. Every gateway follows within a second."))
    frame = FormPage(
        title=_("Who gets %(name)s?") % {"name": profile.name},
        submit=_("Bind"),
        back=_address(profile),
        intro=_("A target that was bound to another profile moves here."),
    )
    return frame.show(request, form)


@page("profiles", FORM)
def unbind(request: ConsoleRequest, binding_id: str) -> HttpResponse:
    binding = access_binding(request.actor, binding_id, Right.MANAGE_PROFILES)
    form = ConfirmForm(binding.profile.name, request.POST or None)

    def unbind_confirmed() -> bool:
        unbind_profile(by=request.actor, binding=binding)
        return True

    if attempt(form, unbind_confirmed):
        return go(request, _address(binding.profile), _("The binding is gone; the next wider one applies."))
    frame = FormPage(
        title=_("Take %(profile)s from %(target)s")
        % {"profile": binding.profile.name, "target": binding.scope_text},
        submit=_("Unbind"),
        back=_address(binding.profile),
        intro=_("Their requests fall back to the next wider binding within a second."),
        is_danger=True,
    )
    return frame.show(request, form)


def _changes(profile: SlaProfile, form: ProfileForm) -> list[tuple[Any, str, str]]:
    """Label, old value, new value of every field that differs, as a person would write them."""
    return [
        (form.fields[name].label, _said(form, name, getattr(profile, name)), _said(form, name, value))
        for name, value in form.cleaned_data.items()
        if name != "seen" and getattr(profile, name) != value
    ]


def _said(form: ProfileForm, name: str, value: Any) -> str:
    """A field's value with its unit, or the words of the choice."""
    field = form.fields[name]
    words = dict(getattr(field, "choices", ()))
    return with_unit(str(words.get(value, field.prepare_value(value))), str(form.units.get(name, "")))


def _address(profile: SlaProfile) -> str:
    return reverse("profile", args=[profile.pk])


def _crumbs() -> Crumbs:
    return [(_("SLA profiles"), reverse("profiles"))]
