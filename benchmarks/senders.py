"""Who sends a load: connections of raw HTTP/1.1, one after another answer or at the times of a Poisson process.

Arrivals come from a timerfd: event-loop timers round to milliseconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import random
import struct
import time
from collections import deque
from collections.abc import Callable
from typing import Literal, cast

import msgspec

from benchmarks.texts import sentences

now = time.perf_counter
_libc = ctypes.CDLL(None, use_errno=True)
_CLOCK_MONOTONIC, _NONBLOCK = 1, 0o4000
_BACK_OFF_S = 0.05


class Load(msgspec.Struct, kw_only=True):
    """One class of requests."""

    name: str
    mode: Literal["closed", "open"]
    port: int
    path: str
    body: str
    """`%s` is replaced by the JSON of a text."""
    connections: int = 64
    """Closed: requests outstanding. Open: the most connections."""
    rate: float = 0.0
    texts: str = "short"
    headers: dict[str, str] = {}
    target_ms: float | None = None


class ArrivalTimer:
    """Calls back at a time to the microsecond."""

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        self._loop, self._callback = loop, callback
        self._fd = _libc.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        loop.add_reader(self._fd, self._fire)

    def set(self, delay_s: float) -> None:
        seconds, rest = divmod(max(delay_s, 1e-6), 1.0)
        _libc.timerfd_settime(self._fd, 0, struct.pack("qqqq", 0, 0, int(seconds), int(rest * 1e9)), None)

    def close(self) -> None:
        self._loop.remove_reader(self._fd)
        os.close(self._fd)

    def _fire(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._fd, 8)
            self._callback()


class Connection(asyncio.Protocol):
    """One keep-alive connection with at most one request outstanding."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._buffer = b""
        self.is_waiting = False
        self.is_lost = False
        self.scheduled = self.sent = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name

    def send(self, payload: bytes, scheduled: float) -> None:
        self.scheduled, self.sent, self.is_waiting = scheduled, now(), True
        self._transport.write(payload)

    def close(self) -> None:
        self.is_lost = True
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head_end = self._buffer.find(b"\r\n\r\n")
        if head_end < 0 or not self.is_waiting:
            return
        head = self._buffer[:head_end]
        end = head_end + 4 + int(_header(head, b"content-length") or 0)
        if len(self._buffer) < end:
            return
        self._buffer = self._buffer[end:]
        self.is_waiting = False
        self._sender.finished(self, int(head[9:12]), head)

    def connection_lost(self, exc: Exception | None) -> None:
        was_lost, self.is_lost = self.is_lost, True
        if self.is_waiting:
            self.is_waiting = False
            self._sender.finished(self, 0, b"")
        elif not was_lost:
            self._sender.lost(self)


def _header(head: bytes, name: bytes) -> bytes | None:
    start = head.lower().find(b"\r\n" + name + b":")
    if start < 0:
        return None
    start += len(name) + 3
    end = head.find(b"\r\n", start)
    return head[start : end if end >= 0 else len(head)].strip()


class Sender:
    """Sends one load and remembers (scheduled, sent, ended, status) of every request."""

    def __init__(self, load: Load, seed: int, stop_at: float) -> None:
        self.load = load
        self.records: list[tuple[float, float, float, int]] = []
        self.receipts: list[tuple[float, int, float]] = []
        """(ended, rows of the batch, device milliseconds) of every answer that has a receipt."""
        self._stop_at = stop_at
        self._loop = asyncio.get_running_loop()
        self._rng = random.Random(f"{load.name}{seed}")
        self._payloads = [_payload(load, text) for text in sentences(load.texts)]
        self._next = self._rng.randrange(len(self._payloads))
        self.connections: list[Connection] = []

    async def start(self) -> None:
        for _ in range(self.load.connections if self.load.mode == "closed" else 1):
            self.send(await self.connect(), now())

    async def connect(self) -> Connection:
        _, connection = await self._loop.create_connection(
            lambda: Connection(self), "127.0.0.1", self.load.port
        )
        self.connections.append(connection)
        return connection

    def send(self, connection: Connection, scheduled: float) -> None:
        self._next = (self._next + 1) % len(self._payloads)
        connection.send(self._payloads[self._next], scheduled)

    def finished(self, connection: Connection, status: int, head: bytes) -> None:
        ended = now()
        self.records.append((connection.scheduled, connection.sent, ended, status))
        rows = _header(head, b"x-tidegate-batch-size") if status == 200 else None
        if rows:
            device_ms = float(_header(head, b"x-tidegate-device-ms") or 0)
            self.receipts.append((ended, int(rows), device_ms))
        self.next(connection, status, ended)

    def next(self, connection: Connection, status: int, ended: float) -> None:
        """Closed loop: the next request at once, after an error a little later."""
        if ended >= self._stop_at:
            return
        if connection.is_lost:
            self._loop.call_later(_BACK_OFF_S, self._reconnect)
        elif status == 200:
            self.send(connection, now())
        else:
            self._loop.call_later(_BACK_OFF_S, self._resend, connection)

    def lost(self, connection: Connection) -> None:
        """An idle connection was closed by the server."""

    def _resend(self, connection: Connection) -> None:
        if not connection.is_lost and now() < self._stop_at:
            self.send(connection, now())

    def _reconnect(self) -> None:
        if now() < self._stop_at:
            self._task = self._loop.create_task(self._connect_and_send())

    async def _connect_and_send(self) -> None:
        try:
            self.send(await self.connect(), now())
        except OSError:
            self._loop.call_later(_BACK_OFF_S, self._reconnect)


class OpenSender(Sender):
    """Arrivals do not wait for answers: they queue here when no connection is free."""

    def __init__(self, load: Load, seed: int, stop_at: float) -> None:
        super().__init__(load, seed, stop_at)
        self._idle: list[Connection] = []
        self._due: deque[float] = deque()
        self._opening = 0
        self._timer = ArrivalTimer(self._loop, self._arrive)
        self._arrival = 0.0

    async def start(self) -> None:
        self._idle = [await self.connect() for _ in range(min(16, self.load.connections))]
        self._arrival = now() + self._rng.expovariate(self.load.rate)
        self._timer.set(self._arrival - now())

    def next(self, connection: Connection, status: int, ended: float) -> None:
        if connection.is_lost:
            self.lost(connection)
        elif self._due:
            self.send(connection, self._due.popleft())
        else:
            self._idle.append(connection)

    def lost(self, connection: Connection) -> None:
        self.connections.remove(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        if self._due:
            self._grow()

    def _arrive(self) -> None:
        while self._arrival <= now() and self._arrival < self._stop_at:
            self._dispatch(self._arrival)
            self._arrival += self._rng.expovariate(self.load.rate)
        if self._arrival < self._stop_at:
            self._timer.set(self._arrival - now())
        else:
            self._timer.close()

    def _dispatch(self, scheduled: float) -> None:
        if self._idle:
            self.send(self._idle.pop(), scheduled)
            return
        self._due.append(scheduled)
        if len(self.connections) + self._opening < self.load.connections:
            self._grow()

    def _grow(self) -> None:
        self._opening += 1
        self._task = self._loop.create_task(self._open())

    async def _open(self) -> None:
        try:
            connection = await self.connect()
            self.next(connection, 200, now())
        except OSError:
            if self._due:
                scheduled = self._due.popleft()
                self.records.append((scheduled, now(), now(), 0))
        finally:
            self._opening -= 1


def _payload(load: Load, text: str) -> bytes:
    body = load.body.replace("%s", msgspec.json.encode(text).decode()).encode()
    headers = {"Host": f"127.0.0.1:{load.port}", "Content-Type": "application/json"} | load.headers
    lines = [f"POST {load.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


# -------------------------------------------------------------------- running and counting
