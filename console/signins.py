"""Sign-ins, sign-outs and changes of credentials, in the audit trail.

allauth writes these itself, so they are no actions of ours: its signals tell, and one event each is kept.
"""

from __future__ import annotations

from typing import Any

from allauth.account.signals import password_changed, password_reset, password_set
from allauth.mfa.signals import (
    authentication_failed,
    authenticator_added,
    authenticator_removed,
    authenticator_reset,
)
from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed
from django.db import transaction
from django.dispatch import Signal
from django.http import HttpRequest

from console.live.endings import ask_again
from console.sessions import forget, remember
from console.sso import keep_shown
from tenants import changes
from tenants.actions.sessions import end_sessions
from tenants.actors import Actor
from tenants.audit import Outcome, Target, record
from tenants.logins import find_account
from tenants.models import User

# A name nobody has may be a password typed into the wrong field: it is never written down.
UNKNOWN_ACCOUNT = Target("user", "", "unknown account")

_BY_THEMSELVES: dict[Signal, str] = {
    user_logged_in: "user.signed_in",
    user_logged_out: "user.signed_out",
    password_changed: "user.password_changed",
    password_set: "user.password_set",
    password_reset: "user.password_reset",
    authenticator_added: "user.mfa_added",
    authenticator_removed: "user.mfa_removed",
    authenticator_reset: "user.mfa_reset",
}


def connect() -> None:
    """Listen from now on; connecting twice changes nothing."""
    for signal, action in _BY_THEMSELVES.items():
        signal.connect(_recorder(action), dispatch_uid=f"audit {action}", weak=False)
    user_logged_in.connect(_signed_in, dispatch_uid="session begins", weak=False)
    user_logged_out.connect(_signed_out, dispatch_uid="session ends", weak=False)
    for signal in (password_changed, password_set, password_reset):
        signal.connect(_password_changed, dispatch_uid="other sessions end", weak=False)
    changes.subscribe(_user_changed)
    user_login_failed.connect(_login_failed, dispatch_uid="audit failed password")
    authentication_failed.connect(_second_factor_failed, dispatch_uid="audit failed second factor")


def _signed_in(sender: Any, request: HttpRequest, user: User, **rest: Any) -> None:
    remember(request, user)
    keep_shown(request)


def _signed_out(sender: Any, request: HttpRequest, user: User | None = None, **rest: Any) -> None:
    if user is not None and request.session.session_key:
        forget(request.session.session_key)
        request.session.delete()  # Django would, but only after the sockets were told to look
        ask_again(str(user.pk))


def _password_changed(sender: Any, request: HttpRequest, user: User, **rest: Any) -> None:
    """Django's other sessions ended with the old password's hash; their rows and their sockets end here."""
    end_sessions(by=Actor.of_user(user, request), user_id=user.pk, keep_key=request.session.session_key or "")
    if request.user == user:
        remember(request, user)


def _recorder(action: str) -> Any:
    def receive(
        sender: Any, request: HttpRequest | None = None, user: User | None = None, **rest: Any
    ) -> None:
        if user is not None:
            _record(Actor.of_user(user, request), action, Target.of(user))

    return receive


def _login_failed(
    sender: Any, credentials: dict[str, Any], request: HttpRequest | None = None, **rest: Any
) -> None:
    login = str(credentials.get("username") or credentials.get("email") or "")
    user = find_account(login)
    _failed(request, Target.of(user) if user else UNKNOWN_ACCOUNT, "wrong password or account")


def _second_factor_failed(sender: Any, user: User, request: HttpRequest | None = None, **rest: Any) -> None:
    _failed(request, Target.of(user), "wrong second factor")


def _user_changed(kind: changes.ChangeKind, object_id: str) -> None:
    if kind == "user":

        def tell() -> None:  # a function: Django names what failed, and a partial has no name
            ask_again(object_id)

        transaction.on_commit(tell, robust=True)


def _failed(request: HttpRequest | None, target: Target, reason: str) -> None:
    """By whoever is signed in, when they were asked once more who it is."""
    is_in = request is not None and hasattr(request, "user") and request.user.is_authenticated
    by = Actor.of_user(request.user, request) if request is not None and is_in else Actor.anonymous(request)
    _record(by, "user.sign_in_failed", target, outcome="failure", reason=reason)


@transaction.atomic
def _record(
    by: Actor, action: str, target: Target, *, outcome: Outcome = "success", reason: str = ""
) -> None:
    record(by=by, action=action, target=target, outcome=outcome, reason=reason)
