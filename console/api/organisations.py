"""Organisations: groups of tenants, and the people who look after all of them."""

from __future__ import annotations

from typing import Any

from django.urls import reverse
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.again import ask_who_it_is
from console.api.accounts import number_of
from console.api.fields import Body, Document, Moment, Text, Whole
from console.api.members import UserDocument
from console.api.schema import changed, gone, listed, made, shown
from console.api.tenants import TenantDocument
from console.api.tenants import address_of as address_of_tenant
from console.api.views import ApiView
from tenants.access import (
    access_organisation,
    access_person,
    access_tenant,
    may_add_tenants,
    require,
    visible_organisations,
)
from tenants.actions.organisations import (
    add_organisation_admin,
    create_organisation,
    move_tenant,
    remove_organisation_admin,
    update_organisation,
)
from tenants.actions.tenants import create_tenant, lock_tenant
from tenants.errors import NotFound
from tenants.models import SLUG_PATTERN, Tenant
from tenants.organisations import MAX_TENANTS, Organisation, OrganisationAdmin
from tenants.roles import Right


class OrganisationDocument(Document):
    id = serializers.CharField()
    name = serializers.CharField()
    max_tenants = serializers.IntegerField(help_text="How many tenants its admins may bring it to.")
    created_at = Moment()


class OrganisationChange(Body):
    name = Text(max_length=100, required=False)
    max_tenants = Whole(min_value=1, max_value=MAX_TENANTS, required=False)


class OrganisationBody(OrganisationChange):
    name = Text(max_length=100)


class OrganisationAdminDocument(Document):
    id = serializers.CharField()
    organisation = serializers.CharField(source="organisation_id")
    user = UserDocument()
    created_at = Moment()


class AdminBody(Body):
    login = Text(max_length=254, help_text="User name or e-mail address of an account.")


class OrganisationTenantBody(Body):
    slug = serializers.RegexField(SLUG_PATTERN, max_length=40)
    name = Text(max_length=100)


class Organisations(ApiView):
    """`/organisations`"""

    @listed("list_organisations", OrganisationDocument)
    def get(self, request: Request) -> Response:
        """Organisations you look after, newest first; every one for who sees the platform."""
        if not self.actor.organisations:
            require(self.actor, Right.VIEW_PLATFORM)
        return self.rows(visible_organisations(self.actor), OrganisationDocument)

    @made("create_organisation", OrganisationBody, OrganisationDocument)
    def post(self, request: Request) -> Response:
        """Make an organisation."""
        require(self.actor, Right.MANAGE_ORGANISATIONS)
        values = self.read(OrganisationBody)
        return self.make(
            lambda: create_organisation(by=self.actor, **values),
            OrganisationDocument,
            lambda row: reverse("api_organisation", args=[row.pk]),
        )


class OneOrganisation(ApiView):
    """`/organisations/{id}`"""

    @shown("get_organisation", OrganisationDocument)
    def get(self, request: Request, organisation_id: str) -> Response:
        """One organisation."""
        return self.one(access_organisation(self.actor, organisation_id), OrganisationDocument)

    @changed("change_organisation", OrganisationChange, OrganisationDocument)
    def patch(self, request: Request, organisation_id: str) -> Response:
        """Change its name, or how many tenants its admins may bring it to. No tenant is taken away."""
        values = self.read(OrganisationChange)

        def act(row: Organisation) -> Any:
            return update_organisation(by=self.actor, organisation=row, **{**row.facts(), **values})

        return self.change(lambda: _managed(self, organisation_id), act, OrganisationDocument)


class OrganisationAdmins(ApiView):
    """`/organisations/{id}/admins`"""

    @listed("list_organisation_admins", OrganisationAdminDocument)
    def get(self, request: Request, organisation_id: str) -> Response:
        """Its admins, the newest first: they are admins of every tenant in it."""
        row = access_organisation(self.actor, organisation_id)
        return self.rows(row.admins.select_related("user"), OrganisationAdminDocument)

    @made("add_organisation_admin", AdminBody, OrganisationAdminDocument)
    def post(self, request: Request, organisation_id: str) -> Response:
        """Make somebody an admin of every tenant in it, those to come included."""
        row = _managed(self, organisation_id)
        ask_who_it_is(request._request)
        user = self.named("login", access_person, self.read(AdminBody)["login"].strip())

        def act() -> OrganisationAdmin:
            return add_organisation_admin(by=self.actor, organisation=row, user=user)

        return self.make(act, OrganisationAdminDocument)


class OneOrganisationAdmin(ApiView):
    """`/organisations/{id}/admins/{account}`"""

    @gone("remove_organisation_admin")
    def delete(self, request: Request, organisation_id: str, account_id: str) -> Response:
        """Take from somebody what they had through the organisation; what a tenant gave them stays."""

        def fetch() -> OrganisationAdmin:
            admins = _managed(self, organisation_id).admins.select_related("user", "organisation")
            row = admins.filter(user_id=number_of(account_id)).first()
            if row is None:
                raise NotFound("organisation admin")
            return row

        def act(row: OrganisationAdmin) -> None:
            remove_organisation_admin(by=self.actor, admin=row)

        return self.remove(fetch, act, OrganisationAdminDocument)


class OrganisationTenants(ApiView):
    """`/organisations/{id}/tenants`"""

    @listed("list_organisation_tenants", TenantDocument)
    def get(self, request: Request, organisation_id: str) -> Response:
        """Its tenants, newest first."""
        return self.rows(access_organisation(self.actor, organisation_id).tenants.all(), TenantDocument)

    @made("create_organisation_tenant", OrganisationTenantBody, TenantDocument)
    def post(self, request: Request, organisation_id: str) -> Response:
        """Make a tenant in it, as far as its admins may bring it; operators set limits afterwards."""
        row = access_organisation(self.actor, organisation_id)
        if not may_add_tenants(self.actor, row):
            require(self.actor, Right.MANAGE_TENANTS)
        values = self.read(OrganisationTenantBody)
        return self.make(
            lambda: create_tenant(by=self.actor, organisation=row, **values),
            TenantDocument,
            address_of_tenant,
        )


class OrganisationTenant(ApiView):
    """`/organisations/{id}/tenants/{tenant}`"""

    @changed("move_tenant_in", None, TenantDocument)
    def put(self, request: Request, organisation_id: str, tenant_id: str) -> Response:
        """Move a tenant here, out of the organisation it is in now."""
        row = _managed(self, organisation_id)

        def act(tenant: Tenant) -> Any:
            return move_tenant(by=self.actor, tenant=tenant, organisation=row)

        return self.change(lambda: access_tenant(self.actor, tenant_id), act, TenantDocument)

    @gone("move_tenant_out")
    def delete(self, request: Request, organisation_id: str, tenant_id: str) -> Response:
        """Let a tenant belong to no organisation."""

        def fetch() -> Tenant:
            tenant = _managed(self, organisation_id).tenants.filter(pk=tenant_id).first()
            if tenant is None:
                raise NotFound("tenant")
            return tenant

        def act(tenant: Tenant) -> Any:
            return move_tenant(by=self.actor, tenant=tenant, organisation=None)

        return self.remove(fetch, act, TenantDocument)

    def hold(self, row: Tenant) -> None:
        lock_tenant(row)


def _managed(view: ApiView, organisation_id: str) -> Organisation:
    return access_organisation(view.actor, organisation_id, Right.MANAGE_ORGANISATIONS)
