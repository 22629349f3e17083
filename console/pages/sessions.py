"""Where I am signed in: every browser, with a way to end each."""

from __future__ import annotations

from dataclasses import dataclass

from django.http import HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _

from console.browsers import name_of
from console.pages.answers import POST, go, page, show
from console.requests import ConsoleRequest
from console.sessions import sessions_of
from tenants.actions.sessions import end_session, end_sessions
from tenants.errors import NotFound
from tenants.models import User
from tenants.people import UserSession


@dataclass(frozen=True, slots=True)
class ShownSession:
    row: UserSession
    browser: str
    is_this_one: bool


@page("sessions")
def index(request: ConsoleRequest) -> HttpResponse:
    return show(request, "pages/sessions.html", sessions=shown_sessions(request, request.user))


@page("sessions", POST)
def end(request: ConsoleRequest, session_id: str) -> HttpResponse:
    """One's own only: another's looks like none."""
    session = sessions_of(request.user).filter(pk=session_id).first()
    if session is None:
        raise NotFound("session")
    end_session(by=request.actor, session=session)
    return go(request, reverse("sessions"), _("That session has ended."))


@page("sessions", POST)
def end_others(request: ConsoleRequest) -> HttpResponse:
    key = request.session.session_key or ""
    ended = end_sessions(by=request.actor, user_id=request.user.pk, keep_key=key)
    said = _("You are signed in nowhere else now.") if ended else _("There was no other session.")
    return go(request, reverse("sessions"), said)


def shown_sessions(request: ConsoleRequest, user: User) -> list[ShownSession]:
    own = request.session.session_key
    return [ShownSession(row, name_of(row.user_agent), row.session_key == own) for row in sessions_of(user)]
