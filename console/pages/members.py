"""A tenant's people: add, change role, remove; operators also make accounts here."""

from __future__ import annotations

import secrets
from typing import Any

from django import forms
from django.db import transaction
from django.http import HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.again import ask_who_it_is
from console.pages.answers import FORM, FormPage, attempt, go, page, show
from console.pages.forms import ActionForm, ConfirmForm
from console.requests import ConsoleRequest
from tenants.access import access_account, access_member, access_tenant_by_slug
from tenants.actions.members import add_member, change_role, remove_member
from tenants.actions.users import create_user
from tenants.actors import Actor
from tenants.models import Membership, Tenant, User
from tenants.roles import Right, Role, can_grant

ROLE_WORDS = {
    Role.OWNER: gettext_lazy("Owner: everything in this tenant, including its owners"),
    Role.ADMIN: gettext_lazy("Admin: name, people and keys; reads usage and audit"),
    Role.DEVELOPER: gettext_lazy("Developer: makes and revokes keys, reads usage"),
    Role.VIEWER: gettext_lazy("Viewer: looks, changes nothing"),
    Role.AUDITOR: gettext_lazy("Auditor: reads and exports the audit trail"),
}


class RoleForm(ActionForm):
    role = forms.ChoiceField(label=gettext_lazy("Role"), widget=forms.RadioSelect)

    def __init__(self, actor: Actor, tenant: Tenant, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        own = actor.rights_in(tenant.pk)
        self.fields["role"].choices = [(r.value, word) for r, word in ROLE_WORDS.items() if can_grant(own, r)]  # type: ignore[attr-defined]


class MemberForm(RoleForm):
    login = forms.CharField(
        label=gettext_lazy("User name or e-mail"),
        max_length=254,
        help_text=gettext_lazy("Somebody you share a tenant with. Invite everybody else."),
    )
    field_order = ("login", "role")


class AccountForm(RoleForm):
    username = forms.CharField(label=gettext_lazy("User name"), max_length=150)
    email = forms.EmailField(label=gettext_lazy("E-mail"), required=False)
    field_order = ("username", "email", "role")


@page("tenants", FORM)
def add(request: ConsoleRequest, slug: str) -> HttpResponse:
    tenant = access_tenant_by_slug(request.actor, slug, Right.MANAGE_MEMBERS)
    form = MemberForm(request.actor, tenant, request.POST or None, initial={"role": Role.VIEWER})

    def add_by_login(login: str, role: str) -> Membership:
        user = access_account(request.actor, tenant.pk, login.strip())
        return add_member(by=request.actor, tenant=tenant, user=user, role=role)

    member = attempt(form, add_by_login)
    if member is not None:
        return go(request, _address(tenant), _("%(name)s was added.") % {"name": member.user.get_username()})
    frame = FormPage(
        title=_("Add a member to %(name)s") % {"name": tenant.name}, submit=_("Add"), back=_address(tenant)
    )
    return frame.show(request, form)


@page("tenants", FORM)
def create_account(request: ConsoleRequest, slug: str) -> HttpResponse:
    """An account and its membership in one step; the first password is shown once."""
    tenant = access_tenant_by_slug(request.actor, slug, Right.MANAGE_USERS)
    ask_who_it_is(request)
    form = AccountForm(request.actor, tenant, request.POST or None, initial={"role": Role.DEVELOPER})
    password = secrets.token_urlsafe(15)

    @transaction.atomic
    def create(username: str, email: str, role: str) -> User:
        user = create_user(by=request.actor, username=username, email=email, password=password)
        add_member(by=request.actor, tenant=tenant, user=user, role=role)
        return user

    user = attempt(form, create)
    if user is None:
        frame = FormPage(
            title=_("New account in %(name)s") % {"name": tenant.name},
            submit=_("Create account"),
            back=_address(tenant),
        )
        return frame.show(request, form)
    template = "pages/account_created_dialog.html" if request.htmx else "pages/account_created.html"
    answer = show(request, template, made=user, password=password, tenant=tenant, back=_address(tenant))
    answer.headers["Cache-Control"] = "no-store"
    return answer


@page("tenants", FORM)
def edit(request: ConsoleRequest, member_id: str) -> HttpResponse:
    member = access_member(request.actor, member_id, Right.MANAGE_MEMBERS)
    form = RoleForm(request.actor, member.tenant, request.POST or None, initial={"role": member.role})
    if attempt(form, change_role, by=request.actor, membership=member) is not None:
        return go(request, _address(member.tenant), _("The role was changed."))
    title = _("Role of %(name)s") % {"name": member.user.get_username()}
    return FormPage(title=title, submit=_("Save"), back=_address(member.tenant)).show(request, form)


@page("tenants", FORM)
def remove(request: ConsoleRequest, member_id: str) -> HttpResponse:
    member = access_member(request.actor, member_id, Right.MANAGE_MEMBERS)
    form = ConfirmForm(member.user.get_username(), request.POST or None)

    def remove_confirmed() -> bool:
        remove_member(by=request.actor, membership=member)
        return True

    if attempt(form, remove_confirmed):
        return go(request, _address(member.tenant), _("The member was removed."))
    frame = FormPage(
        title=_("Remove %(name)s") % {"name": member.user.get_username()},
        submit=_("Remove"),
        back=_address(member.tenant),
        intro=_("They stop seeing this tenant at once. Keys they made keep working: revoke them separately."),
        is_danger=True,
    )
    return frame.show(request, form)


def _address(tenant: Tenant) -> str:
    return reverse("tenant", args=[tenant.slug])
