"""How a view is declared and how it answers: pages, dialogs, redirects, forms with their errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from django.contrib import messages
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import BadRequest
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _

from console.again import NotShownLately, address_to_show_it
from console.denials import record_denied
from console.pages.forms import ActionForm
from console.requests import ConsoleRequest
from tenants.errors import Conflict, DomainError, Invalid, NotAllowed, NotFound

P = ParamSpec("P")
T = TypeVar("T")
View = Callable[Concatenate[ConsoleRequest, P], HttpResponseBase]
Crumbs = list[tuple[str, str]]

FORM, GET, POST = ("GET", "HEAD", "POST"), ("GET", "HEAD"), ("POST",)


def page(
    section: str, methods: tuple[str, ...] = GET
) -> Callable[[View[P]], Callable[..., HttpResponseBase]]:
    """Declare a view: which part of the navigation it belongs to and which methods it takes.

    Whoever is not signed in is sent to sign in and back; nobody reaches a view without an actor.
    """

    def declare(view: View[P]) -> Callable[..., HttpResponseBase]:
        @wraps(view)
        def answer(request: HttpRequest, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
            if request.method not in methods:
                return HttpResponseNotAllowed(methods)
            if _holds_nul(request):
                raise BadRequest("NUL is in no name and no value")
            asked = cast(ConsoleRequest, request)
            if asked.actor.is_anonymous:
                return _to_sign_in(asked)
            if asked.lacks_second_factor:
                return _to_second_factor(asked)
            asked.section = section  # type: ignore[attr-defined]
            try:
                return view(asked, *args, **kwargs)
            except NotShownLately:
                return _to_show_who_it_is(asked)

        answer.section = section  # type: ignore[attr-defined]
        answer.methods = methods  # type: ignore[attr-defined]
        return answer

    return declare


def show(request: HttpRequest, template: str, status: int = 200, **context: Any) -> HttpResponse:
    return render(request, template, context, status=status)


def go(request: ConsoleRequest, address: str, said: str = "") -> HttpResponse:
    """Send the browser on after a write; `said` is shown on the next page."""
    if said:
        messages.success(request, said)
    if request.htmx:
        return HttpResponse(status=204, headers={"HX-Redirect": address})
    return HttpResponseRedirect(address)


def back(request: ConsoleRequest, fallback: str) -> str:
    """Where the person came from, when that is a page of ours."""
    wanted = request.POST.get("next", "")
    is_ours = url_has_allowed_host_and_scheme(wanted, {request.get_host()}, require_https=request.is_secure())
    return wanted if wanted and is_ours else fallback


@dataclass(frozen=True, slots=True)
class FormPage:
    """The words around a form, the same whether it is a page or a dialog."""

    title: str
    submit: str
    back: str
    intro: str = ""
    crumbs: Crumbs = field(default_factory=list)
    is_danger: bool = False
    template: str = ""

    def show(self, request: ConsoleRequest, form: ActionForm, **more: Any) -> HttpResponse:
        if form.denied is not None:
            record_denied(request, form.denied.message, form.denied.tenant_id)
        template = "ui/dialog_form.html" if request.htmx else self.template or "ui/page_form.html"
        status = 422 if form.is_bound else 200
        context = {
            "form": form,
            "page_title": self.title,
            "submit": self.submit,
            "back": self.back,
            "intro": self.intro,
            "crumbs": self.crumbs,
            "danger": self.is_danger,
        }
        return show(request, template, status, **context, **more)


def attempt(form: ActionForm, action: Callable[..., T], **given: Any) -> T | None:
    """Run an action with the form's values. None when the form, or the action, refuses: the form says why."""
    if not form.is_bound or not form.is_valid():
        return None
    try:
        return action(**form.values(), **given)
    except Invalid as error:
        form.refuse(error.errors)
    except (Conflict, NotAllowed, NotFound) as error:
        form.denied = error if isinstance(error, NotAllowed) else None
        form.add_error(None, error.message)
    return None


def try_action(
    request: ConsoleRequest, address: str, said: str, action: Callable[..., object], **given: Any
) -> HttpResponse:
    """One-click writes: what the action refuses is told on the page the person stays on."""
    try:
        action(by=request.actor, **given)
    except (Conflict, Invalid, NotAllowed) as error:
        return stay(request, address, error)
    return go(request, address, said)


def stay(request: ConsoleRequest, address: str, error: DomainError) -> HttpResponse:
    """The refusal, told on the next page; one for want of a right is written down."""
    if isinstance(error, NotAllowed):
        record_denied(request, error.message, error.tenant_id)
    messages.error(request, error.message)
    return go(request, address)


def _holds_nul(request: HttpRequest) -> bool:
    """PostgreSQL's texts hold no NUL: a value with one exists nowhere, and asking for it is an error there."""
    typed = (
        value for data in (request.GET, request.POST) for _name, values in data.lists() for value in values
    )
    return "\0" in request.path_info or any("\0" in value for value in typed)


def _to_second_factor(request: ConsoleRequest) -> HttpResponse:
    """Where an operator without one is led from every page; until then they have no right anyway."""
    messages.warning(request, _("Set up a second factor first: operators here need one."))
    return go(request, reverse("mfa_activate_totp"))


def _to_show_who_it_is(request: ConsoleRequest) -> HttpResponse:
    """There and back to the form, which is empty then: what was typed is kept nowhere meanwhile."""
    address = address_to_show_it(request, request.get_full_path())
    if address is None:
        raise NotAllowed(
            "Sign out and in again first: this is asked only of somebody who has just signed in."
        )
    messages.info(request, _("Confirm that it is you. Then go on."))
    return go(request, address)


def _to_sign_in(request: ConsoleRequest) -> HttpResponse:
    if request.htmx:
        return HttpResponse(status=204, headers={"HX-Redirect": redirect_to_login("/").url})
    return redirect_to_login(request.get_full_path())
