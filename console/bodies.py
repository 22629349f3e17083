"""Bounds request bodies before Django sees them.

Django's ASGI handler writes a whole body to disk before any middleware or view can say no. So the limit
is kept here: a small one everywhere, the upload's only on its own path and only for whoever may register
a version there: everybody else's gigabytes would be written to disk just to be refused.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any

from channels.db import database_sync_to_async
from django.conf import settings

from console.sessions import actor_of_session
from tenants.roles import Right

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[..., Awaitable[None]]

_UPLOAD = re.compile(r"^(/models/[^/]+/versions/new|/api/v1/models/[^/]+/versions)$")
_ENVELOPE_BYTES = 1 << 20
"""Room for the multipart form around an uploaded file."""
_TEXT = b"The request body is larger than this address takes.\n"


class BoundedBodies:
    """Answers 413 as soon as the announced or the received size is over the limit."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        announced = _announced_bytes(scope)
        if announced is not None and announced <= settings.DATA_UPLOAD_MAX_MEMORY_SIZE:
            await self._app(scope, receive, send)
            return
        limit = await _limit_bytes(scope)
        if announced is not None and announced > limit:
            await _refuse(send)
            return
        bounded = _Counted(receive, limit)
        try:
            await self._app(scope, bounded, send)
        except _TooLarge:
            await _refuse(send)


class _TooLarge(Exception):
    """Raised out of `receive` while Django reads the body: nothing has been answered yet."""


class _Counted:
    def __init__(self, receive: Receive, limit_bytes: int) -> None:
        self._receive = receive
        self._left = limit_bytes

    async def __call__(self) -> Message:
        message = await self._receive()
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            raise _TooLarge
        return message


def _announced_bytes(scope: Scope) -> int | None:
    """Content-Length; 0 when there is no body, None when its length is not announced."""
    headers = dict(scope["headers"])
    if b"transfer-encoding" in headers:
        return None
    text = headers.get(b"content-length", b"0")
    return int(text) if text.isdigit() else None


async def _limit_bytes(scope: Scope) -> int:
    if _UPLOAD.match(scope["path"]) and await _may_register(scope):
        return settings.MAX_UPLOAD_BYTES + _ENVELOPE_BYTES
    return settings.DATA_UPLOAD_MAX_MEMORY_SIZE


async def _may_register(scope: Scope) -> bool:
    try:
        cookies = SimpleCookie(dict(scope["headers"]).get(b"cookie", b"").decode("latin-1"))
    except CookieError:
        return False
    morsel = cookies.get(settings.SESSION_COOKIE_NAME)
    if morsel is None:
        return False
    actor = await database_sync_to_async(actor_of_session)(morsel.value)
    return actor.has(Right.MANAGE_MODELS)


async def _refuse(send: Send) -> None:
    headers = [
        (b"content-type", b"text/plain"),
        (b"content-length", b"%d" % len(_TEXT)),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": _TEXT})
