"""Models: where the latency goes, which versions there are, who may use them, and what runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django import forms
from django.db.models import Count, Q
from django.http import HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.live.topics import ALL
from console.pages.answers import FORM, Crumbs, FormPage, attempt, go, page, show, try_action
from console.pages.curves import curve_of
from console.pages.forms import ActionForm
from console.pages.listing import listing
from console.pages.overview import live_tenant, live_words
from console.pages.snippets import curl_for
from console.pages.tunings import recent_runs
from console.requests import ConsoleRequest
from serving.control.catalog.access import access_model, visible_models
from serving.control.catalog.actions import create_model, facts_of, grant_model, revoke_grant, update_model
from serving.control.catalog.models import Idle, Model, ModelGrant, Version
from serving.control.fleet.access import served_ids
from serving.control.fleet.models import Deployment
from tenants.access import access_tenant_by_slug, require, scope_of
from tenants.actors import Actor
from tenants.models import Tenant
from tenants.roles import Right
from tenants.scoping import all_tenants
from tenants.staleness import mark_of

SHARED = ("pool_requests_per_s", "pool_concurrency", "idle_policy")
"""What an existing model says of all its tenants."""
BUSY_STATES = ("pending", "starting", "loading", "warming", "draining")


class ModelForm(ActionForm):
    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=63,
        help_text=gettext_lazy(
            "What clients call it by. Lower-case letters, digits, “.”, “_” and “-”. It cannot be changed later."
        ),
    )
    description = forms.CharField(
        label=gettext_lazy("Description"), required=False, widget=forms.Textarea(attrs={"rows": 3})
    )
    audience = forms.ChoiceField(
        label=gettext_lazy("Who may use it"),
        widget=forms.RadioSelect,
        initial="all",
        choices=[
            ("all", gettext_lazy("Every tenant, now and later")),
            ("some", gettext_lazy("Only the tenants named")),
        ],
    )
    tenants = forms.ModelMultipleChoiceField(
        label=gettext_lazy("Tenants"),
        queryset=Tenant.objects.none(),
        required=False,
        widget=forms.CheckboxSelectMultiple,
    )

    pool_requests_per_s = forms.IntegerField(
        label=gettext_lazy("Shared requests per second"),
        required=False,
        help_text=gettext_lazy(
            "Of all tenants together; empty: no limit. A quota guarantees a part of it; the rest is lent to whoever comes first."
        ),
    )
    pool_concurrency = forms.IntegerField(
        label=gettext_lazy("Shared requests in flight"),
        required=False,
        help_text=gettext_lazy("The same, of requests that run or wait. Empty: no limit."),
    )
    idle_policy = forms.ChoiceField(
        label=gettext_lazy("Who bears idle replicas"),
        choices=[
            (Idle.NONE, gettext_lazy("Nobody")),
            (Idle.BY_USE, gettext_lazy("Tenants that used it in the hour, by device time")),
            (Idle.BY_GRANT, gettext_lazy("Tenants that may use it, evenly")),
            (Idle.BY_GUARANTEE, gettext_lazy("Tenants with a guaranteed share, by its size")),
        ],
        help_text=gettext_lazy(
            "The cost of the time in which replicas stand ready and nothing is asked of them. Binds from the next hour."
        ),
    )

    def __init__(self, *args: Any, is_new: bool = True, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if is_new:
            for name in SHARED:
                del self.fields[name]
        self.fields["tenants"].queryset = Tenant.objects.all()  # type: ignore[attr-defined]
        self.fields["tenants"].only_for = "audience=some"  # type: ignore[attr-defined]
        if not is_new:
            del self.fields["name"], self.fields["tenants"]

    def values(self) -> dict[str, Any]:
        typed = self.cleaned_data
        is_public = typed["audience"] == "all"
        if "name" not in self.fields:
            names = ("description", *SHARED, "seen")
            return {"is_public": is_public} | {name: typed[name] for name in names}
        tenants = None if is_public else list(typed["tenants"])
        return {"name": typed["name"], "description": typed["description"], "tenants": tenants}


class GrantForm(ActionForm):
    tenant = forms.ModelChoiceField(label=gettext_lazy("Tenant"), queryset=Tenant.objects.none())

    def __init__(self, model: Model, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        with all_tenants("an operator grants a model to those who lack it"):
            held = list(model.grants.values_list("tenant_id", flat=True))
        self.fields["tenant"].queryset = Tenant.objects.exclude(pk__in=held)  # type: ignore[attr-defined]


@page("models")
def index(request: ConsoleRequest) -> HttpResponse:
    scope = request.tenant.pk if request.tenant else None
    rows = visible_models(request.actor, scope).annotate(
        version_count=Count("versions", distinct=True),
        ready_count=Count("versions", distinct=True, filter=Q(versions__state="ready")),
    )
    search = request.GET.get("q", "").strip()[:100]
    if search:
        rows = rows.filter(Q(name__icontains=search) | Q(description__icontains=search))
    found = listing(
        request,
        rows,
        sorts={"name": "name", "versions": "version_count", "created": "created_at"},
        default="name",
        filters={"q": ""},
    )
    _count_grants(request.actor, found.page)
    running = {d.model_id: (d, serving_state(d)) for d in _active(model__in=[m.pk for m in found.page])}
    may_manage = request.actor.has(Right.MANAGE_MODELS)
    return show(request, "pages/models.html", listing=found, running=running, may_manage=may_manage)


@page("models", FORM)
def create(request: ConsoleRequest) -> HttpResponse:
    require(request.actor, Right.MANAGE_MODELS)
    form = ModelForm(request.POST or None)
    model = attempt(form, create_model, by=request.actor)
    if model is not None:
        return go(request, reverse("version_register", args=[model.name]), _("Now give it a first version."))
    frame = FormPage(
        title=_("New model"),
        submit=_("Create model"),
        back=reverse("models"),
        intro=_("A model is the name clients call. Its versions come and go behind it."),
        crumbs=_crumbs(),
    )
    return frame.show(request, form)


@page("models")
def detail(request: ConsoleRequest, name: str) -> HttpResponse:
    model = access_model(request.actor, name)
    actor, tenant = request.actor, live_tenant(request)
    return show(
        request,
        "pages/model.html",
        model=model,
        live_scope=tenant.pk if tenant else ALL,
        live_tenant=tenant,
        words=live_words(),
        may_manage=actor.has(Right.MANAGE_MODELS),
        may_deploy=actor.has(Right.MANAGE_FLEET),
        sees_platform=actor.has(Right.VIEW_PLATFORM),
        crumbs=_crumbs(),
        **_serving(request.actor, model),
    )


@page("models")
def state(request: ConsoleRequest, name: str) -> HttpResponse:
    """The part of a model's page that changes by itself: versions and replicas, polled while they move."""
    model = access_model(request.actor, name)
    actor = request.actor
    return show(
        request,
        "pages/model_state.html",
        model=model,
        may_manage=actor.has(Right.MANAGE_MODELS),
        may_deploy=actor.has(Right.MANAGE_FLEET),
        sees_platform=actor.has(Right.VIEW_PLATFORM),
        **_serving(request.actor, model),
    )


@page("models", FORM)
def edit(request: ConsoleRequest, name: str) -> HttpResponse:
    model = access_model(request.actor, name, Right.MANAGE_MODELS)
    initial = facts_of(model) | {"audience": "all" if model.is_public else "some"}
    form = ModelForm(request.POST or None, is_new=False, initial=initial)
    form.remember(mark_of(facts_of(model)))
    if attempt(form, update_model, by=request.actor, model=model) is not None:
        return go(request, _address(model), _("Saved."))
    title = _("Edit %(name)s") % {"name": model.name}
    return FormPage(title=title, submit=_("Save"), back=_address(model), crumbs=_crumbs(model)).show(
        request, form
    )


@page("models", FORM)
def grant(request: ConsoleRequest, name: str) -> HttpResponse:
    model = access_model(request.actor, name, Right.MANAGE_MODELS)
    form = GrantForm(model, request.POST or None)
    if attempt(form, grant_model, by=request.actor, model=model) is not None:
        return go(request, _address(model), _("Granted. Their keys work for it within a second."))
    title = _("Grant %(name)s to a tenant") % {"name": model.name}
    return FormPage(title=title, submit=_("Grant"), back=_address(model)).show(request, form)


@page("models", ("POST",))
def revoke(request: ConsoleRequest, name: str, slug: str) -> HttpResponse:
    model = access_model(request.actor, name, Right.MANAGE_MODELS)
    tenant = access_tenant_by_slug(request.actor, slug)
    return try_action(
        request, _address(model), _("The grant is gone."), revoke_grant, model=model, tenant=tenant
    )


def serving_state(deployment: Deployment) -> str:
    """One word for a list: `ready` while anything answers, else why nothing does."""
    if deployment.ready_count:
        return "ready"
    states = {replica.state for replica in deployment.replicas.all() if replica.is_wanted}
    if states and states <= {"failed"}:
        return "failed"
    return "starting" if deployment.replicas_wanted else "stopped"


def _serving(actor: Actor, model: Model) -> dict[str, Any]:
    """What the page says of versions and replicas; `is_moving` while any of it changes by itself."""
    related = ("artifact", "fallback_version__model", "fallback_model")
    versions = list(model.versions.select_related(*related).prefetch_related("aliases"))
    deployment = _active(model=model).first()
    replicas = (
        list(deployment.replicas.filter(is_wanted=True).select_related("host", "version"))
        if deployment
        else []
    )
    shown = _measured(versions, deployment)
    tunings = recent_runs(actor, model)
    is_moving = any(v.state == "validating" for v in versions) or any(
        r.state in BUSY_STATES for r in replicas
    )
    return {
        "versions": versions,
        "deployment": deployment,
        "replicas": replicas,
        "served": served_ids(),
        "grants": _grants(actor, model),
        "has_ready": any(v.is_ready for v in versions),
        "measured": shown,
        "curve": curve_of(shown) if shown else None,
        "curl": curl_for(model.name, shown or next(iter(versions), None)),
        "is_moving": is_moving or any(run.is_active for run in tunings),
        "tunings": tunings,
    }


def _grants(actor: Actor, model: Model) -> list[ModelGrant]:
    """Of every tenant the person may see, whichever they look at now."""
    with scope_of(actor):
        return list(model.grants.select_related("tenant").order_by("tenant__slug"))


def _count_grants(actor: Actor, shown: Iterable[Model]) -> None:
    with scope_of(actor):
        grants = ModelGrant.objects.filter(model__in=[model.pk for model in shown])
        counts = dict(grants.values_list("model_id").annotate(Count("pk")))
    for model in shown:
        model.grant_count = counts.get(model.pk, 0)  # type: ignore[attr-defined]


def _measured(versions: list[Version], deployment: Deployment | None) -> Version | None:
    """The version whose measurements the page draws: the deployed one, else the newest that has some."""
    measured = [version for version in versions if version.cost]
    deployed = [v for v in measured if deployment and v.pk == deployment.version_id]
    return next(iter(deployed or measured), None)


def _active(**lookup: Any) -> Any:
    rows = Deployment.objects.filter(state="active", **lookup)
    return rows.select_related("version").prefetch_related("replicas")


def _address(model: Model) -> str:
    return reverse("model", args=[model.name])


def _crumbs(model: Model | None = None) -> Crumbs:
    first = [(_("Models"), reverse("models"))]
    return first if model is None else [*first, (model.name, _address(model))]
