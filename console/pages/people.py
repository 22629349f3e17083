"""Everybody who can sign in: what they may do, how they sign in, and what to do when they cannot."""

from __future__ import annotations

import secrets
from typing import Any

from allauth.mfa.models import Authenticator
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
from console.pages.sessions import shown_sessions
from console.people import named_like, with_factor
from console.requests import ConsoleRequest
from tenants.access import access_user, require
from tenants.actions.sessions import end_sessions
from tenants.actions.users import change_platform_role, reset_second_factor, set_active, set_password
from tenants.models import Membership, User
from tenants.roles import PlatformRole, Right
from tenants.scoping import all_tenants

PLATFORM_ROLE_WORDS = {
    PlatformRole.NONE: gettext_lazy("None: only what their tenants give them"),
    PlatformRole.SUPPORT: gettext_lazy("Support: reads every page of the platform, changes nothing"),
    PlatformRole.OPERATOR: gettext_lazy("Operator: everything"),
}


class PlatformRoleForm(ActionForm):
    platform_role = forms.ChoiceField(
        label=gettext_lazy("Role on the platform"),
        required=False,
        choices=[(role.value, word) for role, word in PLATFORM_ROLE_WORDS.items()],
        widget=forms.RadioSelect,
    )


@page("people")
def index(request: ConsoleRequest) -> HttpResponse:
    require(request.actor, Right.VIEW_PLATFORM)
    rows = with_factor(User.objects.annotate(tenant_count=Count("memberships")))
    search = request.GET.get("q", "").strip()[:100]
    if search:
        rows = rows.filter(named_like(search))
    sorts = {
        "name": "username",
        "email": "email",
        "role": "platform_role",
        "tenants": "tenant_count",
        "seen": "last_login",
    }
    with all_tenants("people belong to the platform, whichever tenant is looked at"):
        found = listing(request, rows, sorts=sorts, default="name", filters={"q": ""})
        list(found.page)
    return show(request, "pages/people.html", listing=found)


@page("people")
def detail(request: ConsoleRequest, user_id: int) -> HttpResponse:
    person = access_user(request.actor, user_id)
    with all_tenants("people belong to the platform, whichever tenant is looked at"):
        rows = Membership.objects.select_related("tenant").filter(user=person).order_by("tenant__name")
        members = list(rows)
    return show(
        request,
        "pages/person.html",
        person=person,
        role_words=PLATFORM_ROLE_WORDS[PlatformRole(person.platform_role)],
        members=members,
        sessions=shown_sessions(request, person),
        factor=Authenticator.objects.filter(user=person, type=Authenticator.Type.TOTP).first(),
        may_manage=request.actor.has(Right.MANAGE_USERS),
        crumbs=_crumbs(),
    )


@page("people", FORM)
def change_role(request: ConsoleRequest, user_id: int) -> HttpResponse:
    person = access_user(request.actor, user_id, Right.MANAGE_USERS)
    ask_who_it_is(request)
    form = PlatformRoleForm(request.POST or None, initial={"platform_role": person.platform_role})
    if attempt(form, change_platform_role, by=request.actor, user=person) is not None:
        return go(request, _address(person), _("The role was changed."))
    title = _("Role of %(name)s on the platform") % {"name": person.get_username()}
    return FormPage(title=title, submit=_("Save"), back=_address(person), crumbs=_crumbs(person)).show(
        request, form
    )


@page("people", FORM)
def switch_off(request: ConsoleRequest, user_id: int) -> HttpResponse:
    person = access_user(request.actor, user_id, Right.MANAGE_USERS)
    ask_who_it_is(request)
    form = ConfirmForm(person.get_username(), request.POST or None)
    if attempt(form, set_active, by=request.actor, user=person, is_active=False) is not None:
        return go(request, _address(person), _("The account is switched off."))
    return _danger(
        title=_("Switch off %(name)s") % {"name": person.get_username()},
        submit=_("Switch off"),
        intro=_(
            "They are signed out everywhere and cannot sign in. Keys they made keep sending requests, but manage nothing any more."
        ),
        person=person,
    ).show(request, form)


@page("people", POST)
def switch_on(request: ConsoleRequest, user_id: int) -> HttpResponse:
    person = access_user(request.actor, user_id, Right.MANAGE_USERS)
    said = _("The account is switched on.")
    return try_action(request, _address(person), said, set_active, user=person, is_active=True)


@page("people", FORM)
def reset_factor(request: ConsoleRequest, user_id: int) -> HttpResponse:
    person = access_user(request.actor, user_id, Right.MANAGE_USERS)
    ask_who_it_is(request)
    form = ConfirmForm(person.get_username(), request.POST or None)

    def reset() -> bool:
        reset_second_factor(by=request.actor, user=person)
        return True

    if attempt(form, reset):
        return go(request, _address(person), _("The second factor is gone; they can set up a new one."))
    return _danger(
        title=_("Reset the second factor of %(name)s") % {"name": person.get_username()},
        submit=_("Reset"),
        intro=_(
            "For somebody who lost their telephone and their recovery codes. Make sure it is really them: afterwards their password alone is enough. They are signed out everywhere."
        ),
        person=person,
    ).show(request, form)


@page("people", POST)
def end_all(request: ConsoleRequest, user_id: int) -> HttpResponse:
    person = access_user(request.actor, user_id, Right.MANAGE_USERS)
    end_sessions(by=request.actor, user_id=person.pk)
    return go(request, _address(person), _("They are signed out everywhere."))


@page("people", FORM)
def new_password(request: ConsoleRequest, user_id: int) -> HttpResponse:
    """Made here and shown once, as an account's first one is."""
    person = access_user(request.actor, user_id, Right.MANAGE_USERS)
    ask_who_it_is(request)
    form, password = ConfirmForm(person.get_username(), request.POST or None), secrets.token_urlsafe(15)

    def change() -> bool:
        set_password(by=request.actor, user=person, password=password)
        return True

    if not attempt(form, change):
        return _danger(
            title=_("New password for %(name)s") % {"name": person.get_username()},
            submit=_("Make a password"),
            intro=_("The old one stops working, and they are signed out everywhere."),
            person=person,
        ).show(request, form)
    template = "pages/account_created_dialog.html" if request.htmx else "pages/account_created.html"
    answer = show(request, template, made=person, password=password, back=_address(person), renewed=True)
    answer.headers["Cache-Control"] = "no-store"
    return answer


def _danger(*, person: User, **words: Any) -> FormPage:
    return FormPage(back=_address(person), crumbs=_crumbs(person), is_danger=True, **words)


def _address(person: User) -> str:
    return reverse("person", args=[person.pk])


def _crumbs(person: User | None = None) -> Crumbs:
    first = [(_("People"), reverse("people"))]
    return first if person is None else [*first, (person.get_username(), _address(person))]
