"""Who a session belongs to now, asked outside the middlewares: by sockets, and before a body is read."""

from __future__ import annotations

from importlib import import_module

from django.conf import settings
from django.contrib.auth import get_user
from django.http import HttpRequest

from tenants.actors import Actor


def actor_of_session(session_key: str | None) -> Actor:
    """Read afresh: signing out, a changed password or a lost role shows at once. Anonymous for no session."""
    if not session_key:
        return Actor.anonymous()
    request = HttpRequest()
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(session_key)
    return Actor.of_user(get_user(request))
