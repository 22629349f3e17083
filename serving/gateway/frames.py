"""Sends this gateway's live frame once a second over Valkey. Nobody waits for it, nothing depends on it."""

from __future__ import annotations

import asyncio
import time

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from serving.gateway.metrics import Metrics
from serving.telemetry.frames import FRAMES_CHANNEL, LiveFrame, encode_frame

log = structlog.get_logger("tidegate.gateway.frames")

FRAME_S = 1.0
TIMEOUT_S = 0.5
MAX_BACK_OFF_S = 30.0


class FramePublisher:
    def __init__(self, metrics: Metrics, process: str, valkey_url: str | None) -> None:
        self._metrics = metrics
        self._process = process
        self._epoch = time.time_ns() // 1_000_000
        self._sequence = 0
        self._silent_until = 0.0
        self._back_off_s = FRAME_S
        self._client: Redis | None = None
        if valkey_url:
            self._client = Redis.from_url(
                valkey_url, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S
            )

    async def run(self) -> None:
        """Runs for as long as the gateway does; frames are taken even while nobody can be told."""
        last = time.monotonic()
        while True:
            await asyncio.sleep(max(0.0, last + FRAME_S - time.monotonic()))
            now = time.monotonic()
            frame = self._frame(now - last)
            last = now
            await self._publish(frame, now)

    def _frame(self, window_s: float) -> LiveFrame:
        self._sequence += 1
        series = self._metrics.take()
        return LiveFrame(self._process, self._epoch, self._sequence, time.time(), window_s, series)

    async def _publish(self, frame: LiveFrame, now: float) -> None:
        if self._client is None or now < self._silent_until:
            return
        try:
            await self._client.publish(FRAMES_CHANNEL, encode_frame(frame))
        except (RedisError, OSError, TimeoutError) as error:
            if self._back_off_s == FRAME_S:
                log.warning("frames.unheard", reason=str(error))
            self._silent_until = time.monotonic() + self._back_off_s
            self._back_off_s = min(MAX_BACK_OFF_S, self._back_off_s * 2)
        else:
            self._back_off_s = FRAME_S

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()
