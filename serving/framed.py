"""A connection that carries frames, the same on both ends: reading, joined writes, what a broken peer costs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

import msgspec
import structlog

from serving.wire import Frame, FrameError, FrameReader

log = structlog.get_logger(__name__)

FLUSH_PIECES = 32
"""Written before the tick ends, so that the peer starts on the first frames of a crowd while the last are
still made; without it gateway and worker take turns, each idle while the other works."""


class FramedConnection(asyncio.BufferedProtocol):
    """Few frames of one event-loop tick leave in one write. Subclasses say what frames mean."""

    def __init__(self) -> None:
        self._reader = FrameReader()
        self._pieces: list[bytes | memoryview] = []
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()

    def on_frames(self, frames: Sequence[Frame]) -> None:
        """May raise `FrameError` or `msgspec.DecodeError`: the connection is closed then."""
        raise NotImplementedError

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            self.on_frames(self._reader.frames(nbytes))
        except (FrameError, msgspec.MsgspecError) as error:
            log.warning("link.broken_frame", error=str(error))
            self.close()

    def send(self, pieces: list[bytes | memoryview]) -> None:
        """Queue a frame; a closed connection swallows it."""
        if self._transport is None:
            return
        if not self._pieces:
            self._loop.call_soon(self._flush)
        self._pieces += pieces
        if len(self._pieces) >= FLUSH_PIECES:
            self._flush()

    def close(self) -> None:
        """Drop the connection now; `connection_lost` follows."""
        if self._transport is not None:
            self._transport.abort()

    def _flush(self) -> None:
        pieces, self._pieces = self._pieces, []
        # uvloop raises on a closed transport; `connection_lost` deals with what was on its way.
        if pieces and self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(pieces))
