"""Hears the frames of every process, merges them once a second, and publishes one message per scope.

The controller calls `step` once a second. All of Valkey's work happens on one event loop in a thread of its
own: an outage there delays nothing here, it costs seconds of a chart.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from concurrent.futures import Future

import msgspec
import structlog
from channels.layers import get_channel_layer
from django.conf import settings
from redis.asyncio import Redis
from redis.exceptions import RedisError

from console.live.audience import READY_TENANTS, Audience
from console.live.names import NameBook
from console.live.topics import HISTORY_FRAMES, HISTORY_TTL_S, Scope, encode_second
from serving.telemetry.collector import Collector
from serving.telemetry.frames import FRAMES_CHANNEL, LiveFrame, decode_frame
from serving.telemetry.replica_tally import ReplicaTally
from serving.telemetry.windows import Slice, Windows

MAX_WAITING_FRAMES = 10_000
RETRY_S = 0.5
MAX_RETRY_S = 5.0
LATE_TOLD_EACH_S = 60.0

log = structlog.get_logger(__name__)
Messages = list[tuple[Scope, str]]


class LivePublisher:
    """`start()`, then `step(now)` once a second, then `close()`."""

    def __init__(self, valkey_url: str) -> None:
        self._url = valkey_url
        self._collector = Collector()
        self._names = NameBook()
        self._audience = Audience()
        self._late_told, self._late_told_at = 0, 0.0
        self._frames: deque[tuple[LiveFrame, float]] = deque(maxlen=MAX_WAITING_FRAMES)
        self._epoch = int(time.time() * 1000)
        self._seq = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="live", daemon=True)
        self._sending: Future[None] | None = None
        self._is_closing = False

    @classmethod
    def from_settings(cls) -> LivePublisher:
        return cls(settings.VALKEY_URL)

    @property
    def windows(self) -> Windows:
        """The last minutes by group, for other steps of the controller's thread."""
        return self._collector.windows

    def take_slices(self) -> list[Slice]:
        """Slices that closed since the last take, to be stored."""
        return self._collector.take_slices()

    def take_replica_slices(self) -> dict[int, list[ReplicaTally]]:
        """The same of what replicas said of themselves."""
        return self._collector.take_replica_slices()

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop listening; what was published stays readable until it expires."""
        self._is_closing = True
        self._loop.call_soon_threadsafe(self._stop)
        self._thread.join(timeout=5)

    def tell(self, messages: Messages) -> None:
        """Send to sockets beside the seconds, at once; nothing of it is kept for those who come later."""
        if messages:
            asyncio.run_coroutine_threadsafe(self._broadcast(messages), self._loop)

    def step(self, now: float) -> None:
        """Merge what arrived and publish every second that is complete. Never waits for Valkey."""
        while self._frames:
            frame, received_at = self._frames.popleft()
            self._collector.add(frame, received_at)
        names = self._names.read(now)
        tenants = self._audience.among(names.tenants, now)
        seconds = self._collector.step(now, tenants)
        self._mark_late(now)
        scopes = [Scope(), *map(Scope, tenants)]
        messages: Messages = []
        for second in seconds:
            self._seq += 1
            messages += [
                (s, encode_second(second, epoch=self._epoch, seq=self._seq, scope=s, names=names))
                for s in scopes
            ]
        is_asking = len(names.tenants) > READY_TENANTS
        self._send(messages, list(names.tenants) if is_asking else [], now)

    def _mark_late(self, now: float) -> None:
        """Say once a minute what came too late to be counted in charts: a slow network, or a wrong clock."""
        late = self._collector.late_series
        if late > self._late_told and now >= self._late_told_at + LATE_TOLD_EACH_S:
            log.warning("live.frames_late", series=late - self._late_told)
            self._late_told, self._late_told_at = late, now

    def _send(self, messages: Messages, asked: list[str], now: float) -> None:
        if not messages:
            return
        if self._sending is not None and not self._sending.done():
            log.warning("live.seconds_dropped", reason="the previous second is still being sent")
            return
        self._sending = asyncio.run_coroutine_threadsafe(self._publish(messages, asked, now), self._loop)

    # ------------------------------------------------------------ on the loop's thread

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._client = Redis.from_url(self._url, socket_timeout=5, socket_connect_timeout=2)
        self._listening = self._loop.create_task(self._listen())
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._client.aclose())
            self._loop.close()

    def _stop(self) -> None:
        self._listening.add_done_callback(lambda _: self._loop.stop())
        self._listening.cancel()

    async def _listen(self) -> None:
        retry_s = RETRY_S
        while True:
            try:
                async with self._client.pubsub(ignore_subscribe_messages=True) as channel:
                    await channel.subscribe(FRAMES_CHANNEL)
                    retry_s = RETRY_S
                    while True:
                        self._take(await channel.get_message(timeout=1.0))
            except (RedisError, OSError) as error:
                log.warning("live.frames_unheard", error=str(error), retry_s=retry_s)
                await asyncio.sleep(retry_s)
                retry_s = min(MAX_RETRY_S, retry_s * 2)

    def _take(self, message: dict[str, object] | None) -> None:
        raw = message and message.get("data")
        if not isinstance(raw, bytes):
            return
        try:
            self._frames.append((decode_frame(raw), time.time()))
        except msgspec.DecodeError as error:
            log.warning("live.frame_refused", error=str(error))

    async def _publish(self, messages: Messages, asked: list[str], now: float) -> None:
        try:
            async with self._client.pipeline(transaction=False) as pipe:
                for scope, text in messages:
                    pipe.rpush(scope.history_key, text)
                    pipe.ltrim(scope.history_key, -HISTORY_FRAMES, -1)
                    pipe.expire(scope.history_key, HISTORY_TTL_S)
                await pipe.execute()
            await self._group_send(messages)
            if asked:
                await self._audience.ask(self._client, asked, now)
        except (RedisError, OSError) as error:
            log.warning("live.second_unsent", error=str(error))

    async def _broadcast(self, messages: Messages) -> None:
        try:
            await self._group_send(messages)
        except (RedisError, OSError) as error:
            log.warning("live.messages_unsent", messages=len(messages), error=str(error))

    async def _group_send(self, messages: Messages) -> None:
        layer = get_channel_layer()
        for scope, text in messages:
            await layer.group_send(scope.group, {"type": "live.frame", "text": text})
