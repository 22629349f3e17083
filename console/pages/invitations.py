"""Inviting somebody to a tenant, and what they see behind the link."""

from __future__ import annotations

from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import login
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.invitation_letters import link_of, send_invitation
from console.pages.answers import FORM, POST, FormPage, attempt, go, page, show, stay
from console.pages.forms import ActionForm
from console.pages.members import RoleForm
from console.requests import ConsoleRequest, actor_of
from tenants.access import access_tenant_by_slug
from tenants.actions.invitations import (
    accept_invitation,
    invite,
    join_as_new_person,
    renew_invitation,
    withdraw_invitation,
)
from tenants.errors import Conflict, Invalid, NotAllowed, NotFound
from tenants.invitations import access_invitation, open_invitation
from tenants.logins import find_by_address, is_same_address
from tenants.models import Tenant
from tenants.people import Invitation
from tenants.roles import Right, Role


class InviteForm(RoleForm):
    email = forms.EmailField(
        label=gettext_lazy("E-mail"),
        help_text=gettext_lazy("Only a person of this address can accept, once, within a week."),
    )
    field_order = ("email", "role")


class JoinForm(ActionForm):
    """What a new person chooses; their address is the invitation's."""

    username = forms.CharField(
        label=gettext_lazy("User name"),
        max_length=150,
        widget=forms.TextInput(attrs={"autocomplete": "username", "autocapitalize": "none"}),
    )
    password = forms.CharField(
        label=gettext_lazy("Password"),
        max_length=200,
        help_text=gettext_lazy("At least 12 characters, and not a common one."),
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )


@page("tenants", FORM)
def create(request: ConsoleRequest, slug: str) -> HttpResponse:
    tenant = access_tenant_by_slug(request.actor, slug, Right.MANAGE_MEMBERS)
    form = InviteForm(request.actor, tenant, request.POST or None, initial={"role": Role.DEVELOPER})
    made = attempt(form, invite, by=request.actor, tenant=tenant, by_mail=settings.SENDS_MAIL)
    if made is not None:
        return _sent(request, *made)
    frame = FormPage(
        title=_("Invite somebody to %(name)s") % {"name": tenant.name},
        submit=_("Invite"),
        back=_address(tenant),
        intro=_("They get a link by e-mail.")
        if settings.SENDS_MAIL
        else _("You get a link to hand to them."),
    )
    return frame.show(request, form)


@page("tenants", POST)
def renew(request: ConsoleRequest, invitation_id: str) -> HttpResponse:
    invitation = access_invitation(request.actor, invitation_id)
    try:
        made = renew_invitation(by=request.actor, invitation=invitation, by_mail=settings.SENDS_MAIL)
    except (Conflict, NotAllowed) as error:
        return stay(request, _address(invitation.tenant), error)
    return _sent(request, *made)


@page("tenants", POST)
def withdraw(request: ConsoleRequest, invitation_id: str) -> HttpResponse:
    invitation = access_invitation(request.actor, invitation_id)
    withdraw_invitation(by=request.actor, invitation=invitation)
    return go(request, _address(invitation.tenant), _("The invitation is withdrawn; its link is dead."))


def join(request: HttpRequest, secret: str) -> HttpResponse:
    """Open to whoever holds the link; what they may do depends on who they are."""
    if request.method not in FORM:
        return HttpResponseNotAllowed(FORM)
    try:
        invitation = open_invitation(secret)
    except NotFound:
        return show(request, "pages/join.html", 404)
    answer = _joined(request, invitation) if request.user.is_authenticated else _newcomer(request, invitation)
    answer.headers["Cache-Control"] = "no-store"
    # The address is a credential. With "no-referrer" browsers would send our own form from "Origin: null".
    answer.headers["Referrer-Policy"] = "strict-origin"
    return answer


def _joined(request: HttpRequest, invitation: Invitation) -> HttpResponse:
    """For somebody who is signed in: accept, or learn that another account is meant."""
    is_theirs = is_same_address(request.user.email, invitation.email)  # type: ignore[union-attr]
    error = ""
    if request.method == "POST":
        try:
            accept_invitation(by=actor_of(request), invitation=invitation)
            messages.success(request, _("Welcome to %(name)s.") % {"name": invitation.tenant.name})
            return HttpResponseRedirect(_address(invitation.tenant))
        except (Conflict, Invalid, NotAllowed) as refused:
            error = refused.message
    context: dict[str, Any] = {"invitation": invitation, "is_theirs": is_theirs, "error": error}
    return show(request, "pages/join.html", 409 if error else 200, **context)


def _newcomer(request: HttpRequest, invitation: Invitation) -> HttpResponse:
    """For somebody who is not: sign in with the account of that address, or make it."""
    has_account = find_by_address(invitation.email) is not None
    form = JoinForm(request.POST or None) if not has_account and invitation.proves_address else None
    user = attempt(form, join_as_new_person, by=actor_of(request), invitation=invitation) if form else None
    if user is not None:
        login(request, user, backend=settings.AUTHENTICATION_BACKENDS[0])
        messages.success(request, _("Welcome to %(name)s.") % {"name": invitation.tenant.name})
        return HttpResponseRedirect(_address(invitation.tenant))
    status = 422 if form is not None and form.is_bound else 200
    context = {"invitation": invitation, "form": form, "has_account": has_account, "back": request.path}
    return show(request, "pages/join.html", status, **context)


def _sent(request: ConsoleRequest, invitation: Invitation, secret: str) -> HttpResponse:
    """By mail where there is mail; else the link is shown, this once."""
    address, link = _address(invitation.tenant), link_of(request, secret)
    if settings.SENDS_MAIL:
        if send_invitation(invitation, link):
            return go(request, address, _("%(email)s has mail.") % {"email": invitation.email})
        messages.error(request, _("The mail could not be sent. Try “Send again” in a moment."))
        return go(request, address)
    template = "pages/invitation_link_dialog.html" if request.htmx else "pages/invitation_link.html"
    answer = show(request, template, invitation=invitation, link=link, back=address)
    answer.headers["Cache-Control"] = "no-store"
    return answer


def _address(tenant: Tenant) -> str:
    return reverse("tenant", args=[tenant.slug])
