"""API keys: name → scopes → models → networks → limits → expiry → shown once, with a command line that works."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.db import transaction
from django.http import HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.pages.answers import FORM, FormPage, attempt, go, page, show
from console.pages.forms import ActionForm, ConfirmForm
from console.pages.snippets import answering_version, curl_for
from console.requests import ConsoleRequest
from serving.control.catalog.access import visible_models
from serving.control.catalog.models import Model
from serving.control.quotas.actions import create_quota
from tenants.access import access_key, access_tenant_by_slug
from tenants.actions.keys import create_key, revoke_key, roll_key
from tenants.actors import Actor
from tenants.errors import Invalid
from tenants.models import ApiKey, Tenant
from tenants.roles import KEY_SCOPES, Right, Rights, can_give_scope

EXPIRIES = {
    "never": gettext_lazy("Never"),
    "30": gettext_lazy("In 30 days"),
    "90": gettext_lazy("In 90 days"),
    "365": gettext_lazy("In a year"),
}
OVERLAPS = {
    "0": gettext_lazy("No longer"),
    "1": gettext_lazy("One hour more"),
    "24": gettext_lazy("A day more"),
    "168": gettext_lazy("A week more"),
    "720": gettext_lazy("30 days more"),
}
# KEY_SCOPES' sentences, where those who translate find them.
SCOPES = {
    "infer": gettext_lazy("Send requests to models and read what they are"),
    "manage:read": gettext_lazy("Read the tenant, its members and its keys"),
    "manage:write": gettext_lazy("Change the tenant, its members, keys and alert rules"),
    "usage:read": gettext_lazy("Read what was used and what it cost"),
    "audit:export": gettext_lazy("Read and export the audit trail"),
}


class KeyForm(ActionForm):
    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=100,
        help_text=gettext_lazy(
            "What uses it, so that you dare to revoke it later: “support chat, production”."
        ),
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )
    scopes = forms.MultipleChoiceField(
        label=gettext_lazy("Scopes"),
        choices=list(SCOPES.items()),
        initial=["infer"],
        widget=forms.CheckboxSelectMultiple,
    )
    allowed_models = forms.MultipleChoiceField(
        label=gettext_lazy("Models"),
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text=gettext_lazy("None ticked: every model the tenant may use, now and later."),
    )
    allowed_networks = forms.CharField(
        label=gettext_lazy("Networks"),
        required=False,
        max_length=2500,
        widget=forms.Textarea(attrs={"rows": 2, "placeholder": "192.0.2.0/24"}),
        help_text=gettext_lazy("Where it may be used from, one CIDR a line. Empty: everywhere."),
    )
    expires = forms.ChoiceField(label=gettext_lazy("Expires"), choices=list(EXPIRIES.items()), initial="90")
    requests = forms.IntegerField(
        label=gettext_lazy("Requests a minute"),
        required=False,
        min_value=1,
        help_text=gettext_lazy("Of this key alone, within what its tenant has. Empty: no limit of its own."),
    )
    tokens = forms.IntegerField(
        label=gettext_lazy("Tokens a minute"),
        required=False,
        min_value=1,
        help_text=gettext_lazy("The same in tokens. Budgets and further limits: Quotas."),
    )
    field_order = ("name", "scopes", "allowed_models", "allowed_networks", "requests", "tokens", "expires")

    def __init__(self, models: list[str], own: Rights, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["scopes"].choices = [  # type: ignore[attr-defined]
            (name, SCOPES[name]) for name in KEY_SCOPES if can_give_scope(own, name)
        ]
        self.fields["allowed_models"].choices = [(name, name) for name in models]  # type: ignore[attr-defined]
        if not models:
            del self.fields["allowed_models"]

    def values(self) -> dict[str, Any]:
        typed = dict(self.cleaned_data)
        typed["expires_at"] = _moment(typed.pop("expires"))
        typed["allowed_networks"] = typed["allowed_networks"].split() or None
        typed["allowed_models"] = typed.get("allowed_models") or None
        limits = {name: typed.pop(name) for name in ("requests", "tokens")}
        typed["limits"] = {name: limit for name, limit in limits.items() if limit is not None}
        return typed


class RollForm(ActionForm):
    overlap = forms.ChoiceField(
        label=gettext_lazy("The old key works for"), choices=list(OVERLAPS.items()), initial="24"
    )
    expires = forms.ChoiceField(
        label=gettext_lazy("The new key expires"), choices=list(EXPIRIES.items()), initial="90"
    )

    def values(self) -> dict[str, Any]:
        typed = self.cleaned_data
        return {"overlap": timedelta(hours=int(typed["overlap"])), "expires_at": _moment(typed["expires"])}


def _moment(days: str) -> datetime | None:
    return None if days == "never" else timezone.now() + timedelta(days=int(days))


@page("tenants", FORM)
def create(request: ConsoleRequest, slug: str) -> HttpResponse:
    tenant = access_tenant_by_slug(request.actor, slug, Right.MANAGE_KEYS)
    models = list(visible_models(request.actor, tenant.pk))
    own = request.actor.rights_in(tenant.pk)
    form = KeyForm([model.name for model in models], own, request.POST or None)
    made = attempt(form, _create, by=request.actor, tenant=tenant)
    if made is None:
        frame = FormPage(
            title=_("New API key for %(name)s") % {"name": tenant.name},
            submit=_("Create key"),
            back=_address(tenant),
            intro=_("The key is shown once. Only a keyed digest of it is stored."),
        )
        return frame.show(request, form)
    return _shown_once(request, *made, models)


@transaction.atomic
def _create(*, by: Actor, tenant: Tenant, limits: dict[str, int], **values: Any) -> tuple[ApiKey, str]:
    """The key with its limits, or neither. Raises as `create_key` and `create_quota`."""
    key, token = create_key(by=by, tenant=tenant, **values)
    for resource, limit in limits.items():
        try:
            create_quota(by=by, tenant=tenant, key=key, resource=resource, window="minute", limit=limit)
        except Invalid as error:
            raise Invalid({resource: " ".join(error.errors.values())}) from error
    return key, token


def _shown_once(request: ConsoleRequest, key: ApiKey, token: str, models: list[Model]) -> HttpResponse:
    usable = [m for m in models if key.allowed_models is None or m.name in key.allowed_models]
    template = "pages/key_created_dialog.html" if request.htmx else "pages/key_created.html"
    answer = show(
        request,
        template,
        key=key,
        token=token,
        curl=curl_for(usable[0].name, answering_version(usable[0]), token) if usable else "",
        tenant=key.tenant,
        back=_address(key.tenant),
    )
    answer.headers["Cache-Control"] = "no-store"
    return answer


@page("tenants", FORM)
def roll(request: ConsoleRequest, key_id: str) -> HttpResponse:
    key = access_key(request.actor, key_id, Right.MANAGE_KEYS)
    form = RollForm(request.POST or None)
    made = attempt(form, roll_key, by=request.actor, key=key)
    if made is not None:
        return _shown_once(request, *made, list(visible_models(request.actor, key.tenant_id)))
    frame = FormPage(
        title=_("Roll %(name)s") % {"name": key.name},
        submit=_("Roll"),
        back=_address(key.tenant),
        intro=_(
            "A new key with the same name, scopes, models and networks. Both work until the old one ends, and share its limits."
        ),
    )
    return frame.show(request, form)


@page("tenants", FORM)
def revoke(request: ConsoleRequest, key_id: str) -> HttpResponse:
    key = access_key(request.actor, key_id, Right.MANAGE_KEYS)
    form = ConfirmForm(key.name, request.POST or None)
    if attempt(form, revoke_key, by=request.actor, key=key) is not None:
        return go(request, _address(key.tenant), _("%(name)s is revoked.") % {"name": key.name})
    frame = FormPage(
        title=_("Revoke %(name)s") % {"name": key.name},
        submit=_("Revoke"),
        back=_address(key.tenant),
        intro=_("Every gateway refuses it within a second, for ever. Whatever still uses it stops working."),
        is_danger=True,
    )
    return frame.show(request, form)


def _address(tenant: Tenant) -> str:
    return reverse("tenant", args=[tenant.slug])
