"""The live socket: who may see what, a snapshot to start from, a frame a second, and a pulse."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from urllib.parse import parse_qs

import msgspec
import structlog
from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings
from django.db import DatabaseError
from redis.asyncio import Redis
from redis.exceptions import RedisError

from console.live import topics
from console.live.alerts import firing_list
from console.live.endings import group_of
from console.live.topics import Scope
from console.sessions import actor_of_session

MIN_SNAPSHOT_GAP_S = 1.0
MAX_CLIENT_CHARS = 256

log = structlog.get_logger(__name__)


class LiveConsumer(AsyncWebsocketConsumer):
    """`/live/?scope=all` for operators, `/live/?scope=tnt_…` for whoever may see that tenant.

    `&only=alerts` leaves the figures of each second out: pages that show none have the bell all the same.
    """

    view: Scope
    has_figures: bool
    person: str
    """The group of all sockets of this person."""
    heard_at: float
    snapshot_at: float = float("-inf")
    pulse: asyncio.Task[None] | None = None

    async def connect(self) -> None:
        """A refusal is sent as a close code, which a browser only shows once the socket was accepted."""
        await self.accept()
        query = parse_qs(self.scope["query_string"].decode("latin-1"))
        self.view = Scope.parse(query.get("scope", [topics.ALL])[0][:64])
        self.has_figures = query.get("only") != ["alerts"]
        self.person = group_of(str(getattr(self.scope.get("user"), "pk", None)))
        refusal = await self._refusal()
        if refusal is not None:
            await self.close(refusal)
            return
        self.heard_at = time.monotonic()
        await self.channel_layer.group_add(self.view.group, self.channel_name)
        await self.channel_layer.group_add(self.person, self.channel_name)
        await self._send({"type": "hello", "scope": str(self.view)})
        await self._send_snapshot()
        self.pulse = asyncio.create_task(self._beat())

    async def disconnect(self, code: int) -> None:
        if self.pulse is not None:
            self.pulse.cancel()
            await self.channel_layer.group_discard(self.view.group, self.channel_name)
            await self.channel_layer.group_discard(self.person, self.channel_name)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Anything a client says proves that it lives; what is not understood is ignored."""
        self.heard_at = time.monotonic()
        if text_data is None or len(text_data) > MAX_CLIENT_CHARS:
            return
        try:
            message = msgspec.json.decode(text_data, type=dict[str, str])
        except msgspec.DecodeError:
            return
        if message.get("do") == "snapshot":
            await self._send_snapshot()

    async def live_frame(self, event: dict[str, Any]) -> None:
        text: str = event["text"]
        if self.has_figures or not text.startswith(topics.FRAME_PREFIX):
            await self.send(text_data=text)

    async def live_ask_again(self, event: dict[str, Any]) -> None:
        """Something about the person changed: a session ended, a role was lost."""
        refusal = await self._refusal()
        if refusal is not None:
            await self.close(refusal)

    async def _send_snapshot(self) -> None:
        """At most one a second per socket: a client in trouble must not multiply it."""
        wait_s = self.snapshot_at + MIN_SNAPSHOT_GAP_S - time.monotonic()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        self.snapshot_at = time.monotonic()
        frames = await _history(self.view) if self.has_figures else []
        alerts = await _firing(self.view)
        await self.send(text_data=f'{{"type":"snapshot","frames":[{",".join(frames)}],"alerts":{alerts}}}')

    async def _beat(self) -> None:
        checked_at = time.monotonic()
        while True:
            await asyncio.sleep(topics.PING_S)
            now = time.monotonic()
            if now - self.heard_at > topics.SILENCE_S:
                await self.close()
                return
            if now - checked_at >= topics.RECHECK_S - topics.PING_S / 2:
                checked_at = now
                refusal = await self._refusal()
                if refusal is not None:
                    await self.close(refusal)
                    return
            await self._send({"type": "ping"})

    async def _refusal(self) -> int | None:
        """The close code, when the session has ended or the person may not see this scope (any more)."""
        try:
            return await database_sync_to_async(_refusal)(self.scope.get("session"), self.view)
        except DatabaseError as error:
            log.warning("live.access_unchecked", error=str(error))
            return None if self.pulse is not None else 1013

    async def _send(self, message: dict[str, str]) -> None:
        await self.send(text_data=msgspec.json.encode(message).decode())


def _refusal(session: Any, view: Scope) -> int | None:
    actor = actor_of_session(getattr(session, "session_key", None))
    if actor.is_anonymous:
        return topics.CLOSE_SIGNED_OUT
    may_see = actor.can_see(view.tenant_id) if view.tenant_id else actor.sees_platform
    return None if may_see else topics.CLOSE_FORBIDDEN


async def _history(view: Scope) -> list[str]:
    """The kept frames of a scope; none while Valkey is away (the socket then starts with the next frame)."""
    client = Redis.from_url(settings.VALKEY_URL, socket_timeout=5, decode_responses=True)
    try:
        frames = await client.lrange(view.history_key, 0, -1)
        return [frame if isinstance(frame, str) else frame.decode() for frame in frames]
    except (RedisError, OSError) as error:
        log.warning("live.history_unread", error=str(error))
        return []
    finally:
        await client.aclose()


async def _firing(view: Scope) -> str:
    """What fires in a scope, as JSON; null while the database is away: what was shown before stays."""
    try:
        return await database_sync_to_async(firing_list)(view)
    except DatabaseError as error:
        log.warning("live.alerts_unread", error=str(error))
        return "null"
