"""Who a session belongs to now, and where and when it was last used."""

from __future__ import annotations

import time
from dataclasses import replace
from importlib import import_module
from types import MappingProxyType
from typing import cast

from allauth.account.internal.flows.login import get_authentication_records
from allauth.mfa.models import Authenticator
from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.sessions.models import Session
from django.db.models import Exists, OuterRef, QuerySet
from django.http import HttpRequest
from django.utils import timezone

from tenants.actors import Actor
from tenants.models import User
from tenants.people import UserSession
from tenants.roles import PlatformRole

SEEN_EVERY_S = 60
SEEN_SESSION_KEY = "seen_at"
MAX_SESSIONS = 50
"""Of one person; the ones unused for longest end."""


def actor_of_session(session_key: str | None) -> Actor:
    """Read afresh: signing out, a changed password or a lost role shows at once. Anonymous for no session.

    For whoever asks outside the middlewares: sockets, and before a body is read.
    """
    if not session_key:
        return Actor.anonymous()
    request = HttpRequest()
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(session_key)
    request.user = get_user(request)
    return actor_of_request(request)


def actor_of_request(request: HttpRequest) -> Actor:
    """Whoever must use a second factor and does not has no role at all until they do."""
    user = cast(User, request.user)
    actor = Actor.of_user(user, request)
    request.lacks_second_factor = lacks_second_factor(request)  # type: ignore[attr-defined]
    if not request.lacks_second_factor:  # type: ignore[attr-defined]
        return actor
    return replace(
        actor, platform_role=PlatformRole.NONE, memberships=MappingProxyType({}), organisations=frozenset()
    )


def lacks_second_factor(request: HttpRequest) -> bool:
    """True for people with a platform role when the installation asks them for a second factor.

    Whoever came by single sign-on has the provider's.
    """
    user = cast(User, request.user)
    if not settings.OPERATORS_NEED_MFA or not user.is_authenticated or not user.platform_role:
        return False
    records = get_authentication_records(request, user)
    if any(record.get("method") == "socialaccount" for record in records):
        return False
    return not Authenticator.objects.filter(user_id=user.pk, type=Authenticator.Type.TOTP).exists()


def remember(request: HttpRequest, user: User) -> None:
    """Note that this session is the person's, from this address and browser, now."""
    if not request.session.session_key:
        request.session.save()
    key, seen = request.session.session_key, _seen(request)
    UserSession.objects.update_or_create(session_key=key, defaults={"user": user, **seen})
    request.session[SEEN_SESSION_KEY] = int(time.time())
    kept = user.sessions.values_list("pk", flat=True)[:MAX_SESSIONS]
    for old in user.sessions.exclude(pk__in=list(kept)):
        request.session.__class__().delete(old.session_key)
        old.delete()


def note_use(request: HttpRequest) -> None:
    """At most one write a minute for each session."""
    if time.time() - request.session.get(SEEN_SESSION_KEY, 0) >= SEEN_EVERY_S:
        remember(request, cast(User, request.user))


def forget(session_key: str) -> None:
    """Signed out: the list must not go on showing it."""
    UserSession.objects.filter(session_key=session_key).delete()


def sessions_of(user: User) -> QuerySet[UserSession]:
    """Those that still let somebody in."""
    return user.sessions.filter(_is_alive())


def drop_ended() -> int:
    """Rows of sessions that expired; returns how many."""
    deleted, _ = UserSession.objects.exclude(_is_alive()).delete()
    return deleted


def _is_alive() -> Exists:
    live = Session.objects.filter(session_key=OuterRef("session_key"), expire_date__gt=timezone.now())
    return Exists(live)


def _seen(request: HttpRequest) -> dict[str, object]:
    actor = Actor.anonymous(request)
    return {"last_seen_at": timezone.now(), "ip": actor.ip, "user_agent": actor.user_agent}
