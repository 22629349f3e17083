"""A streamed answer inside the worker: how its chunks get from the engine's thread to the link, in order.

Credit says how many chunks the gateway has room for. Each counter has one writer, so that neither thread
waits for the other: `granted` and what was sent belong to the event loop, `emitted` to the engine's thread.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from serving.errors import ClientTooSlow, DataPlaneError
from serving.worker.engines.contract import EngineOutput

MAX_CREDIT = 4096
"""Chunks a gateway may ask for at one time."""
MAX_CHUNK_BYTES = 1 << 20
MAX_KEPT_CHUNKS = 1024
MAX_KEPT_BYTES = 4 << 20
"""What is kept of a stream beyond its credit, for engines that do not look at it."""
CONTENDED_STALL_S = 1.0
"""So long may one stream hold up a device that other work waits for; what it takes meanwhile pays back."""
SLOWEST_CHUNKS_PER_S = 8
SLOWEST_BYTES_PER_S = 64 << 10
"""The pace at which holding it up is paid back: the slower of the two, by what each chunk holds."""
QUIET_STALL_S = 60.0
"""So long may it stand still at one time when nothing else waits; gateways give up on a client sooner."""

FramePieces = list[bytes | memoryview]


class Stream:
    """The answer to one streamed request; its engine asks it as a `StreamGate`."""

    __slots__ = (
        "_contended_s",
        "_emitted",
        "_granted",
        "_outbox",
        "_quiet_s",
        "ended",
        "first_at",
        "is_done",
        "kept",
        "kept_bytes",
        "request",
        "sent",
    )

    def __init__(self, request: Any, credit: int, outbox: Outbox) -> None:
        self.request = request
        self._outbox = outbox
        self._granted = min(credit, MAX_CREDIT)
        self._emitted = 0
        self._contended_s = self._quiet_s = 0.0
        self.ended: DataPlaneError | None = None
        """Why nothing more is wanted."""
        self.sent = 0
        self.first_at = 0.0
        """When the first chunk was written, on the intake's clock; 0 before."""
        self.kept: deque[tuple[FramePieces, int]] = deque()
        """Frames that wait for credit, with the bytes of their tensors."""
        self.kept_bytes = 0
        self.is_done = False
        """The engine has finished; what is kept goes out before the request is closed."""

    # ------------------------------------------------------------ asked on the engine's thread

    @property
    def is_wanted(self) -> bool:
        return self.ended is None

    @property
    def is_writable(self) -> bool:
        return self._emitted < self._granted

    @property
    def has_begun(self) -> bool:
        return self._emitted > 0

    def emit(self, output: EngineOutput) -> None:
        """Hand a chunk to the event loop; swallowed when nobody wants it any more."""
        if self.ended is None:
            self._emitted += 1
            self._quiet_s = 0.0
            if self._emitted - self._granted > MAX_KEPT_CHUNKS:
                self.end(_too_much())  # said here, lest an engine in a hurry fills the memory first
                return
            if self._contended_s:
                self._contended_s = max(0.0, self._contended_s - _worth_s(output))
            self._outbox.put(self, output)

    def stood_still(self, waited_s: float, *, is_contended: bool) -> None:
        """The device waited for this stream. A reader whose pace is no reason to wait is given up."""
        if is_contended:
            self._contended_s += waited_s
        self._quiet_s += waited_s
        if self._contended_s >= CONTENDED_STALL_S or self._quiet_s >= QUIET_STALL_S:
            self.end(ClientTooSlow("the client reads more slowly than the device may wait for it"))

    # ------------------------------------------------------------ on the event loop

    def grant(self, chunks: int) -> None:
        self._granted = min(self._granted + chunks, self.sent + MAX_CREDIT)

    def end(self, error: DataPlaneError) -> None:
        """Nothing more is wanted; the first reason stays."""
        if self.ended is None:
            self.ended = error

    @property
    def has_next(self) -> bool:
        """Whether a frame waits that may go out now."""
        return bool(self.kept) and self.sent < self._granted and self.ended is None

    @property
    def is_held_up(self) -> bool:
        """Whether a frame waits for credit that still may come."""
        return bool(self.kept) and self.ended is None

    def keep(self, frame: FramePieces, size_bytes: int) -> None:
        self.kept.append((frame, size_bytes))
        self.kept_bytes += size_bytes

    def next_frame(self, now: float) -> FramePieces:
        """The oldest kept frame, which is about to be written."""
        frame, size_bytes = self.kept.popleft()
        self.kept_bytes -= size_bytes
        if not self.sent:
            self.first_at = now
        self.sent += 1
        return frame

    def check_kept(self) -> None:
        """End the stream when too much of it waits for credit."""
        if len(self.kept) > MAX_KEPT_CHUNKS or self.kept_bytes > MAX_KEPT_BYTES:
            self.end(_too_much())


def _too_much() -> ClientTooSlow:
    return ClientTooSlow("the client reads too slowly: too much of the answer waits for it")


def _worth_s(output: EngineOutput) -> float:
    """How long a reader of the slowest tolerable pace takes for this chunk."""
    size_bytes = sum(tensor.array.nbytes for tensor in output.tensors.values())
    return max(1 / SLOWEST_CHUNKS_PER_S, size_bytes / SLOWEST_BYTES_PER_S)


class Outbox:
    """Chunks on their way from the engine's thread; one wake-up of the event loop for all of a moment."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, deliver: Callable[[Stream, EngineOutput], None]
    ) -> None:
        self._loop = loop
        self._deliver = deliver
        self._waiting: deque[tuple[Stream, EngineOutput]] = deque()
        self._is_called = False

    def put(self, stream: Stream, output: EngineOutput) -> None:
        """On the engine's thread."""
        self._waiting.append((stream, output))
        if not self._is_called:
            self._is_called = True
            with suppress(RuntimeError):  # the event loop is closed: the process is about to end
                self._loop.call_soon_threadsafe(self.empty)

    def empty(self) -> None:
        """On the event loop; also before an outcome is dealt with, so that chunks come first."""
        # Cleared first: what is put from now on either is seen below or calls again.
        self._is_called = False
        while self._waiting:
            self._deliver(*self._waiting.popleft())
