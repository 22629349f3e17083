"""Organisations: their tenants, and the people who look after all of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django import forms
from django.db.models import Count
from django.http import HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.again import ask_who_it_is
from console.pages.answers import FORM, POST, Crumbs, FormPage, attempt, go, page, show, try_action
from console.pages.forms import ActionForm, ConfirmForm
from console.pages.listing import listing
from console.requests import ConsoleRequest
from tenants.access import (
    access_organisation,
    access_person,
    access_tenant_by_slug,
    may_add_tenants,
    require,
    visible_organisations,
    visible_tenants,
)
from tenants.actions.organisations import (
    add_organisation_admin,
    create_organisation,
    move_tenant,
    remove_organisation_admin,
    update_organisation,
)
from tenants.actions.tenants import create_tenant
from tenants.errors import NotFound
from tenants.models import Tenant
from tenants.organisations import MAX_TENANTS, Organisation, OrganisationAdmin
from tenants.roles import Right
from tenants.staleness import mark_of


class OrganisationForm(ActionForm):
    units = {"max_tenants": gettext_lazy("tenants")}

    name = forms.CharField(label=gettext_lazy("Name"), max_length=100)
    max_tenants = forms.IntegerField(
        label=gettext_lazy("Tenants, at most"),
        min_value=1,
        max_value=MAX_TENANTS,
        initial=10,
        help_text=gettext_lazy("Its admins make tenants by themselves up to this number."),
    )


class AdminForm(ActionForm):
    login = forms.CharField(
        label=gettext_lazy("User name or e-mail"),
        max_length=254,
        help_text=gettext_lazy("They become an admin of every tenant here, the ones to come included."),
    )


class MoveForm(ActionForm):
    slug = forms.ChoiceField(
        label=gettext_lazy("Tenant"),
        help_text=gettext_lazy("It leaves the organisation it is in now."),
    )

    def __init__(self, tenants: Iterable[Tenant], *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choices = [(tenant.slug, f"{tenant.name} ({tenant.slug})") for tenant in tenants]
        self.fields["slug"].choices = choices  # type: ignore[attr-defined]


class NewTenantForm(ActionForm):
    name = forms.CharField(label=gettext_lazy("Name"), max_length=100)
    slug = forms.CharField(
        label=gettext_lazy("Slug"),
        max_length=40,
        help_text=gettext_lazy(
            "In addresses and metrics; 3 to 40 lower-case letters, digits and hyphens. It cannot be changed later."
        ),
    )


@page("organisations")
def index(request: ConsoleRequest) -> HttpResponse:
    if not request.actor.organisations:
        require(request.actor, Right.VIEW_PLATFORM)
    rows = visible_organisations(request.actor).annotate(
        tenant_count=Count("tenants", distinct=True), admin_count=Count("admins", distinct=True)
    )
    sorts = {"name": "name", "tenants": "tenant_count", "admins": "admin_count", "created": "created_at"}
    search = request.GET.get("q", "").strip()[:100]
    found = listing(
        request,
        rows.filter(name__icontains=search) if search else rows,
        sorts=sorts,
        default="name",
        filters={"q": ""},
    )
    may_create = request.actor.has(Right.MANAGE_ORGANISATIONS)
    return show(request, "pages/organisations.html", listing=found, may_create=may_create)


@page("organisations", FORM)
def create(request: ConsoleRequest) -> HttpResponse:
    require(request.actor, Right.MANAGE_ORGANISATIONS)
    form = OrganisationForm(request.POST or None)
    made = attempt(form, create_organisation, by=request.actor)
    if made is not None:
        said = _("%(name)s exists: add its admins and its tenants.") % {"name": made.name}
        return go(request, _address(made), said)
    frame = FormPage(
        title=_("New organisation"), submit=_("Create"), back=reverse("organisations"), crumbs=_crumbs()
    )
    return frame.show(request, form)


@page("organisations")
def detail(request: ConsoleRequest, organisation_id: str) -> HttpResponse:
    row = access_organisation(request.actor, organisation_id)
    tenants = list(row.tenants.order_by("name")[: MAX_TENANTS + 1])
    return show(
        request,
        "pages/organisation.html",
        organisation=row,
        tenants_here=tenants,
        admins=row.admins.select_related("user"),
        may_manage=request.actor.has(Right.MANAGE_ORGANISATIONS),
        may_add=may_add_tenants(request.actor, row),
        is_full=len(tenants) >= row.max_tenants,
        crumbs=_crumbs(),
    )


@page("organisations", FORM)
def edit(request: ConsoleRequest, organisation_id: str) -> HttpResponse:
    row = access_organisation(request.actor, organisation_id, Right.MANAGE_ORGANISATIONS)
    form = OrganisationForm(request.POST or None, initial=row.facts())
    form.remember(mark_of(row.facts()))
    if attempt(form, update_organisation, by=request.actor, organisation=row) is not None:
        return go(request, _address(row), _("Saved."))
    return _frame(row, _("Edit %(name)s"), _("Save")).show(request, form)


@page("organisations", FORM)
def add_admin(request: ConsoleRequest, organisation_id: str) -> HttpResponse:
    row = access_organisation(request.actor, organisation_id, Right.MANAGE_ORGANISATIONS)
    ask_who_it_is(request)
    form = AdminForm(request.POST or None)

    def add(login: str) -> OrganisationAdmin:
        user = access_person(request.actor, login.strip())
        return add_organisation_admin(by=request.actor, organisation=row, user=user)

    made = attempt(form, add)
    if made is not None:
        return go(request, _address(row), _("%(name)s was added.") % {"name": made.user.get_username()})
    return _frame(row, _("Add an admin to %(name)s"), _("Add")).show(request, form)


@page("organisations", FORM)
def remove_admin(request: ConsoleRequest, organisation_id: str, user_id: int) -> HttpResponse:
    row = access_organisation(request.actor, organisation_id, Right.MANAGE_ORGANISATIONS)
    admin = row.admins.select_related("user", "organisation").filter(user_id=user_id).first()
    if admin is None:
        raise NotFound("organisation admin")
    form = ConfirmForm(admin.user.get_username(), request.POST or None)

    def remove() -> bool:
        remove_organisation_admin(by=request.actor, admin=admin)
        return True

    if attempt(form, remove):
        return go(request, _address(row), _("They are no admin of it any more."))
    return _frame(row, _("Remove an admin of %(name)s"), _("Remove"), is_danger=True).show(request, form)


@page("organisations", FORM)
def move_in(request: ConsoleRequest, organisation_id: str) -> HttpResponse:
    row = access_organisation(request.actor, organisation_id, Right.MANAGE_ORGANISATIONS)
    others = visible_tenants(request.actor).exclude(organisation=row).order_by("name")
    form = MoveForm(others, request.POST or None)

    def move(slug: str) -> Tenant:
        tenant = access_tenant_by_slug(request.actor, slug)
        return move_tenant(by=request.actor, tenant=tenant, organisation=row)

    if attempt(form, move) is not None:
        return go(request, _address(row), _("The tenant was moved here."))
    return _frame(row, _("Move a tenant to %(name)s"), _("Move")).show(request, form)


@page("organisations", POST)
def move_out(request: ConsoleRequest, organisation_id: str, slug: str) -> HttpResponse:
    row = access_organisation(request.actor, organisation_id, Right.MANAGE_ORGANISATIONS)
    tenant = row.tenants.filter(slug=slug).first()
    if tenant is None:
        raise NotFound("tenant")
    said = _("The tenant belongs to no organisation now.")
    return try_action(request, _address(row), said, move_tenant, tenant=tenant, organisation=None)


@page("organisations", FORM)
def new_tenant(request: ConsoleRequest, organisation_id: str) -> HttpResponse:
    row = access_organisation(request.actor, organisation_id)
    if not may_add_tenants(request.actor, row):
        require(request.actor, Right.MANAGE_TENANTS)
    form = NewTenantForm(request.POST or None)
    made = attempt(form, create_tenant, by=request.actor, organisation=row)
    if made is not None:
        said = _("%(name)s can be used now: add people, and make a key.") % {"name": made.name}
        return go(request, reverse("tenant", args=[made.slug]), said)
    return _frame(row, _("New tenant in %(name)s"), _("Create tenant")).show(request, form)


def _frame(row: Organisation, title: str, submit: str, **more: Any) -> FormPage:
    address = _address(row)
    return FormPage(
        title=title % {"name": row.name}, submit=submit, back=address, crumbs=_crumbs(row), **more
    )


def _address(row: Organisation) -> str:
    return reverse("organisation", args=[row.pk])


def _crumbs(row: Organisation | None = None) -> Crumbs:
    first = [(_("Organisations"), reverse("organisations"))]
    return first if row is None else [*first, (row.name, _address(row))]
