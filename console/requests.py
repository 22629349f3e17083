"""What every request to the console carries: an id, an actor, the tenants it may see.

Both middlewares serve sync and async stacks, so that no request changes threads on their account.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Awaitable, Callable, Iterable
from string import ascii_lowercase, digits
from typing import TYPE_CHECKING, Any, cast

import structlog
from asgiref.sync import iscoroutinefunction, markcoroutinefunction, sync_to_async
from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from console.live.topics import ALL
from console.sessions import actor_of_request, note_use
from tenants.access import access_tenant, scope_of, visible_tenants
from tenants.actors import Actor
from tenants.errors import NotFound
from tenants.models import Tenant, User
from tenants.roles import Rights

if TYPE_CHECKING:
    from django_htmx.middleware import HtmxDetails

VERSION = "0.1.0"
TENANT_SESSION_KEY = "tenant"
"""Session entry with the id of the chosen tenant; absent means every tenant the person may see."""
MAX_SWITCHABLE_TENANTS = 100
"""Entries of the tenant switch; whoever sees more finds the rest on the tenants page."""

Handler = Callable[[HttpRequest], Any]
_CLIENT_ID = re.compile(r"(?!tg_)[A-Za-z0-9._-]{1,64}")  # an API key is no id to be repeated
_ID_ALPHABET = ascii_lowercase + digits


class ConsoleRequest(HttpRequest):
    """The request as views get it, behind the middlewares; for annotations."""

    request_id: str
    actor: Actor
    tenant: Tenant | None
    """The chosen tenant; None looks at all that the actor may see."""
    lacks_second_factor: bool
    user: User
    htmx: HtmxDetails


class RequestIdMiddleware:
    """Gives each request an id: the client's own when well formed, else a new one; echoed and logged."""

    sync_capable = async_capable = True

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response
        self.is_async = iscoroutinefunction(get_response)
        if self.is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        request_id = _request_id(request)
        request.request_id = request_id  # type: ignore[attr-defined]
        if self.is_async:
            return self._answer_async(request, request_id)
        with structlog.contextvars.bound_contextvars(request_id=request_id):
            return _with_id(self.get_response(request), request_id)

    async def _answer_async(self, request: HttpRequest, request_id: str) -> HttpResponseBase:
        with structlog.contextvars.bound_contextvars(request_id=request_id):
            return _with_id(await self.get_response(request), request_id)


class ScopeMiddleware:
    """Sets `request.actor` and `request.tenant`, and runs the view in the scope they allow.

    Someone signed out has no scope at all: a view that forgets to ask for sign-in cannot read a row.
    """

    sync_capable = async_capable = True

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response
        self.is_async = iscoroutinefunction(get_response)
        if self.is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        if self.is_async:
            return self._answer_async(request)
        actor, tenant = _identify(request)
        if actor.is_anonymous:
            return cast(HttpResponseBase, self.get_response(request))
        with scope_of(actor, tenant.pk if tenant else None):
            return _for_one(cast(HttpResponseBase, self.get_response(request)))

    async def _answer_async(self, request: HttpRequest) -> HttpResponseBase:
        actor, tenant = await sync_to_async(_identify)(request)
        if actor.is_anonymous:
            return cast(HttpResponseBase, await self.get_response(request))
        with scope_of(actor, tenant.pk if tenant else None):
            return _for_one(cast(HttpResponseBase, await self.get_response(request)))


def choose_tenant(request: HttpRequest, tenant_id: str | None) -> None:
    """Remember which tenant the person looks at; None for all of theirs. Raises `NotFound`."""
    if tenant_id is None:
        request.session.pop(TENANT_SESSION_KEY, None)
        return
    request.session[TENANT_SESSION_KEY] = access_tenant(actor_of(request), tenant_id).pk


def actor_of(request: HttpRequest) -> Actor:
    """The request's actor; anonymous when it never got as far as the middleware."""
    actor = getattr(request, "actor", None)
    return actor if isinstance(actor, Actor) else Actor.anonymous(request)


def _switchable(actor: Actor, tenant: Tenant | None) -> Iterable[Tenant]:
    """Not asked for where the chosen tenant is the only one: most people have no other."""
    if tenant is not None and not actor.sees_platform and set(actor.tenant_ids) == {tenant.pk}:
        return [tenant]
    return visible_tenants(actor)[:MAX_SWITCHABLE_TENANTS]


def shell_context(request: HttpRequest) -> dict[str, Any]:
    """What the frame around every page needs. `rights` are those in the chosen tenant, or in any of one's own."""
    actor = actor_of(request)
    tenant = getattr(request, "tenant", None)
    return {
        "actor": actor,
        "current_tenant": tenant,
        "tenants": _switchable(actor, tenant),
        "bell_scope": tenant.pk if tenant else ALL if actor.sees_platform else "",
        "rights": {right.value for right in _shown_rights(actor, tenant)},
        "gateway_url": settings.GATEWAY_URL,
        "version": VERSION,
        "oidc_name": settings.OIDC_NAME if settings.OIDC_ISSUER else "",
    }


def _identify(request: HttpRequest) -> tuple[Actor, Tenant | None]:
    actor = actor_of_request(request)
    if not actor.is_anonymous:
        note_use(request)
    tenant = None if actor.is_anonymous else _chosen_tenant(request, actor)
    request.actor, request.tenant = actor, tenant  # type: ignore[attr-defined]
    return actor, tenant


def _chosen_tenant(request: HttpRequest, actor: Actor) -> Tenant | None:
    """The tenant in the session while it may still be seen; a member of one tenant needs no choice."""
    chosen = request.session.get(TENANT_SESSION_KEY)
    if chosen is None and not actor.sees_platform and len(actor.tenant_ids) == 1:
        chosen = next(iter(actor.tenant_ids))
    if chosen is None:
        return None
    try:
        return access_tenant(actor, chosen)
    except NotFound:
        request.session.pop(TENANT_SESSION_KEY, None)
        return None


def _for_one(answer: HttpResponseBase) -> HttpResponseBase:
    """What a person is shown is kept by no cache, nor by the browser they leave: it is gone with the session."""
    answer.headers.setdefault("Cache-Control", "private, no-store")
    return answer


def _shown_rights(actor: Actor, tenant: Tenant | None) -> Rights:
    if tenant is not None:
        return actor.rights_in(tenant.pk)
    return actor.platform_rights.union(*map(actor.rights_in, actor.tenant_ids))


def _request_id(request: HttpRequest) -> str:
    given = request.headers.get("x-request-id", "")
    if _CLIENT_ID.fullmatch(given):
        return given
    return "req_" + "".join(secrets.choice(_ID_ALPHABET) for _ in range(26))


def _with_id(response: HttpResponseBase, request_id: str) -> HttpResponseBase:
    response.headers["x-request-id"] = request_id
    return response
