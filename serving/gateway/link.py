"""One connection to one worker: frames in, frames out, writes of one event-loop tick joined."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol, cast

import msgspec
import structlog

from serving.wire import Frame, FrameError, FrameReader

log = structlog.get_logger("tidegate.gateway.link")

FLUSH_PIECES = 32
"""Written before the tick ends, so that the worker starts on the first requests of a crowd while the gateway
still reads the last; without it the two take turns, each idle while the other works."""


class LinkOwner(Protocol):
    """Who is told what happens on a link."""

    def on_frames(self, link: Link, frames: Sequence[Frame]) -> None:
        """May raise `FrameError` or `msgspec.DecodeError`: the link is closed then."""

    def on_lost(self, link: Link) -> None: ...


class Link(asyncio.BufferedProtocol):
    def __init__(self, owner: LinkOwner) -> None:
        self._owner = owner
        self._reader = FrameReader()
        self._pieces: list[bytes | memoryview] = []
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self.received = 0
        """Reads so far: whoever watches for silence compares two looks."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self.received += 1
        try:
            self._owner.on_frames(self, self._reader.frames(nbytes))
        except (FrameError, msgspec.MsgspecError) as error:
            log.warning("link.broken_frame", error=str(error))
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._owner.on_lost(self)

    def send(self, pieces: list[bytes | memoryview]) -> None:
        """Queue a frame: few of one tick leave in one write."""
        if not self._pieces:
            self._loop.call_soon(self._flush)
        self._pieces += pieces
        if len(self._pieces) >= FLUSH_PIECES:
            self._flush()

    def close(self) -> None:
        """Drop the connection now; `on_lost` follows."""
        if self._transport is not None:
            self._transport.abort()

    def _flush(self) -> None:
        pieces, self._pieces = self._pieces, []
        # uvloop raises on a closed transport; `on_lost` deals with what was on its way.
        if pieces and self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(pieces))
