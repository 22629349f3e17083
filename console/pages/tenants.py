"""Tenants: what they may do, what they get, what they spend; their people, limits and keys."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django import forms
from django.db.models import Count, F, Q
from django.http import HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.pages.answers import FORM, Crumbs, FormPage, attempt, go, page, show, try_action
from console.pages.forms import ActionForm, ConfirmForm, FigureField
from console.pages.listing import listing
from console.pages.promises import promises_of
from console.pages.quotas import limits_of, with_limits
from console.requests import ConsoleRequest
from tenants.access import access_tenant_by_slug, require, scope_of, visible_tenants
from tenants.actions.invitations import MAX_OPEN
from tenants.actions.keys import MAX_ACTIVE_KEYS
from tenants.actions.tenants import create_tenant, resume_tenant, suspend_tenant, update_tenant
from tenants.ledger import Asked, Span, Sums, sums_by, total_of
from tenants.models import SET_BY_OPERATORS, ApiKey, Membership, Tenant
from tenants.people import Invitation
from tenants.roles import Right
from tenants.rollups import day_of
from tenants.scoping import tenant_scope
from tenants.staleness import mark_of
from tenants.zones import UTC_NAME, zone, zone_names

USAGE_SPAN = timedelta(days=29)
RECENT_KEYS = 50
"""Revoked keys that are still listed."""


class TenantForm(ActionForm):
    """Name and limits; the slug only when the tenant is made."""

    units = {
        "max_concurrency": gettext_lazy("requests"),
        "requests_per_s": "req/s",
        "burst": gettext_lazy("requests"),
    }

    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=100,
        help_text=gettext_lazy("Shown on every page and copied into usage and audit rows."),
    )
    slug = forms.CharField(
        label=gettext_lazy("Slug"),
        max_length=40,
        help_text=gettext_lazy(
            "In addresses and metrics; 3 to 40 lower-case letters, digits and hyphens. It cannot be changed later."
        ),
    )
    max_concurrency = forms.IntegerField(
        label=gettext_lazy("Requests in flight, at most"),
        min_value=1,
        initial=1024,
        help_text=gettext_lazy("Beyond it, each gateway refuses with 429 concurrency_exceeded."),
    )
    requests_per_s = FigureField(
        label=gettext_lazy("Request rate"),
        required=False,
        help_text=gettext_lazy(
            "Beyond it, requests are refused with 429 rate_limited. Empty: no rate limit."
        ),
    )
    burst = forms.IntegerField(
        label=gettext_lazy("Burst"),
        required=False,
        min_value=1,
        help_text=gettext_lazy("How many may come at once before the rate bites. Empty: one second's worth."),
    )

    time_zone = forms.ChoiceField(
        label=gettext_lazy("Time zone"),
        required=False,
        initial=UTC_NAME,
        choices=lambda: [(name, name) for name in zone_names()],
        help_text=gettext_lazy("Where the days and months of usage, statements and budgets begin."),
    )

    def __init__(self, *args: Any, tenant: Tenant | None = None, limits: bool = True, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if tenant is not None:
            del self.fields["slug"]
        if not limits:
            for name in SET_BY_OPERATORS:
                del self.fields[name]

    def values(self) -> dict[str, Any]:
        """A zone that nobody chose stays as it is."""
        given = super().values()
        return given if given.get("time_zone") else {n: v for n, v in given.items() if n != "time_zone"}


class SuspendForm(ConfirmForm):
    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        max_length=200,
        help_text=gettext_lazy("Shown to the tenant's people and kept in the audit trail."),
    )

    def values(self) -> dict[str, Any]:
        return {"reason": self.cleaned_data["reason"]}


@page("tenants")
def index(request: ConsoleRequest) -> HttpResponse:
    # Of every tenant in the list, whichever is chosen.
    with scope_of(request.actor):
        rows = visible_tenants(request.actor).annotate(
            member_count=Count("memberships", distinct=True),
            key_count=Count("api_keys", distinct=True, filter=Q(api_keys__revoked_at__isnull=True)),
        )
        search = request.GET.get("q", "").strip()[:100]
        if search:
            rows = rows.filter(Q(slug__icontains=search) | Q(name__icontains=search))
        found = listing(
            request,
            rows,
            sorts={
                "name": "name",
                "slug": "slug",
                "members": "member_count",
                "keys": "key_count",
                "created": "created_at",
            },
            default="name",
            filters={"q": ""},
        )
        return show(
            request, "pages/tenants.html", listing=found, may_create=request.actor.has(Right.MANAGE_TENANTS)
        )


@page("tenants", FORM)
def create(request: ConsoleRequest) -> HttpResponse:
    require(request.actor, Right.MANAGE_TENANTS)
    form = TenantForm(request.POST or None)
    tenant = attempt(form, create_tenant, by=request.actor)
    if tenant is not None:
        return go(
            request,
            _address(tenant),
            _("%(name)s can be used now: add people, and make a key.") % {"name": tenant.name},
        )
    frame = FormPage(
        title=_("New tenant"),
        submit=_("Create tenant"),
        back=reverse("tenants"),
        intro=_("A tenant is one business team: the unit of isolation, limits and cost."),
        crumbs=_crumbs(),
    )
    return frame.show(request, form)


@page("tenants")
def detail(request: ConsoleRequest, slug: str) -> HttpResponse:
    chosen = request.tenant
    if chosen is not None and chosen.slug == slug:
        tenant = chosen  # went through the same gate a moment ago
    else:
        tenant = access_tenant_by_slug(request.actor, slug)
    rights = {right.value for right in request.actor.rights_in(tenant.pk)}
    with tenant_scope(tenant.pk):
        members = list(Membership.objects.select_related("user"))
        # Active ones first, and all of them: a key that is not listed cannot be revoked.
        newest = F("revoked_at").desc(nulls_first=True)
        rows = with_limits(ApiKey.objects.order_by(newest, "-created_at"))
        keys = list(rows[: MAX_ACTIVE_KEYS + RECENT_KEYS])
        invitations = list(Invitation.objects.filter(accepted_at=None, withdrawn_at=None)[:MAX_OPEN])
        usage = _usage(request, tenant)
    only_ending = request.GET.get("keys") == "ending"
    listed = [key for key in keys if key.expires_soon] if only_ending else keys
    return show(
        request,
        "pages/tenant.html",
        tenant=tenant,
        own_rights=rights,
        members=members,
        invitations=invitations,
        keys=[(key, limits_of(key)) for key in listed],
        only_ending=only_ending,
        ending_count=sum(key.expires_soon for key in keys),
        promises=promises_of(request.actor, tenant),
        usage=usage,
        usage_total=total_of(usage),
        crumbs=_crumbs(),
    )


@page("tenants", FORM)
def edit(request: ConsoleRequest, slug: str) -> HttpResponse:
    tenant = access_tenant_by_slug(request.actor, slug, Right.EDIT_TENANT)
    limits = request.actor.has(Right.MANAGE_TENANTS)
    form = TenantForm(request.POST or None, tenant=tenant, limits=limits, initial=tenant.facts())
    form.remember(mark_of(tenant.facts()))
    if attempt(form, update_tenant, by=request.actor, tenant=tenant) is not None:
        return go(request, _address(tenant), _("Saved. Gateways follow within a second."))
    frame = FormPage(
        title=_("Edit %(name)s") % {"name": tenant.name},
        submit=_("Save"),
        back=_address(tenant),
        crumbs=_crumbs(tenant),
    )
    return frame.show(request, form)


@page("tenants", FORM)
def suspend(request: ConsoleRequest, slug: str) -> HttpResponse:
    tenant = access_tenant_by_slug(request.actor, slug, Right.MANAGE_TENANTS)
    form = SuspendForm(tenant.slug, request.POST or None)
    if attempt(form, suspend_tenant, by=request.actor, tenant=tenant) is not None:
        return go(request, _address(tenant), _("%(name)s is suspended.") % {"name": tenant.name})
    frame = FormPage(
        title=_("Suspend %(name)s") % {"name": tenant.name},
        submit=_("Suspend"),
        back=_address(tenant),
        intro=_(
            "Within a second every request of this tenant is refused with 403 tenant_suspended. Nothing is deleted."
        ),
        crumbs=_crumbs(tenant),
        is_danger=True,
    )
    return frame.show(request, form)


@page("tenants", ("POST",))
def resume(request: ConsoleRequest, slug: str) -> HttpResponse:
    tenant = access_tenant_by_slug(request.actor, slug, Right.MANAGE_TENANTS)
    return try_action(
        request, _address(tenant), _("Requests are answered again."), resume_tenant, tenant=tenant
    )


def _usage(request: ConsoleRequest, tenant: Tenant) -> list[Sums]:
    if not request.actor.has(Right.VIEW_USAGE, tenant.pk):
        return []
    today = day_of(timezone.now(), zone(tenant.usage_zone))
    return sums_by(Asked(Span(today - USAGE_SPAN, today), [tenant.pk]), ("model", "class"))


def _address(tenant: Tenant) -> str:
    return reverse("tenant", args=[tenant.slug])


def _crumbs(tenant: Tenant | None = None) -> Crumbs:
    first = [(_("Tenants"), reverse("tenants"))]
    return first if tenant is None else [*first, (tenant.name, _address(tenant))]
