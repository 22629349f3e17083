"""uvicorn's HTTP side, bounded: what a client may hold open, how slowly it may speak, how an answer leaves.

A subclass instead of a front of our own: parsing, keep-alive and pipelining stay uvicorn's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import httptools
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

MAX_HEAD_BYTES = 64 << 10
"""For a head, and for what is in a message besides its body: chunk sizes, extensions, trailers."""
MAX_HEADERS = 128
"""In a head, and again in a trailer: each costs far more than the few bytes it may have."""
FRAMING_PER_BODY_BYTE = 8
"""So many bytes of framing are allowed besides for each byte of a body: six are a chunk of one."""
FEED_BYTES = 8 << 10
"""Parsed at one go, so that no more pipelined requests wait parsed than fit in here."""
LINGER_BYTES = 64 << 20
LINGER_TICKS = 5
"""How much, and how many sweeps long, a client may still send after it was refused."""
HEAD_TICKS = 10
"""Sweeps (one a second) a client may take to send its headers."""
BODY_TICKS = 30
"""Sweeps a client may take for its body before the reader is woken and looks at its clock."""
REST_TICKS = 75
"""Sweeps a connection may lie at rest between two requests."""
UNREAD_TICKS = 30
"""Sweeps an answer may lie unread without any progress."""
MUCH_UNREAD_BYTES = 1 << 20
SLOWEST_READ_BYTES = 64 << 10
"""Of more than `MUCH_UNREAD_BYTES`, so much has to be taken in each further sweep: as slow as a body may come."""
EXTENSION = "tidegate.connection"

_HEAD_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-type: text/plain; charset=utf-8\r\ncontent-length: 25\r\nconnection: close\r\n\r\n"
    b"request head is too large"
)
_HEAD_TOO_SLOW = (
    b"HTTP/1.1 408 Request Timeout\r\n"
    b"content-type: text/plain; charset=utf-8\r\ncontent-length: 31\r\nconnection: close\r\n\r\n"
    b"request head took far too long\n"
)
_MALFORMED = (
    b"HTTP/1.1 400 Bad Request\r\n"
    b"content-type: text/plain; charset=utf-8\r\ncontent-length: 30\r\nconnection: close\r\n\r\n"
    b"Invalid HTTP request received."
)
_NO_TUNNELS = (
    b"HTTP/1.1 400 Bad Request\r\n"
    b"content-type: text/plain; charset=utf-8\r\ncontent-length: 25\r\nconnection: close\r\n\r\n"
    b"CONNECT is not supported."
)


class CorkedTransport:
    """Holds an answer's head until its body is written, so that one `send(2)` carries both.

    Its `close` lingers when the client is still sending a body nobody will read: closing at once would
    reset the connection and could destroy the answer on its way.
    """

    __slots__ = ("_held", "_transport", "is_body_unread", "is_lingering")

    def __init__(self, transport: asyncio.Transport, is_body_unread: Callable[[], bool]) -> None:
        self._transport = transport
        self._held = b""
        self.is_body_unread = is_body_unread
        self.is_lingering = False

    def write(self, data: bytes) -> None:
        if self._held:
            data, self._held = self._held + data, b""
        elif data.startswith(b"HTTP/1.1 ") and data[9:10] != b"1":
            self._held = data
            return
        # uvloop raises on a closed transport; the client is gone and nobody misses the answer.
        if not self._transport.is_closing():
            self._transport.write(data)

    def write_whole(self, data: bytes) -> None:
        """Write a complete answer."""
        if not self._transport.is_closing():
            self._transport.write(data)

    def flush(self) -> None:
        """Write a head that no body followed (HEAD, 204)."""
        if self._held:
            self.write(b"")

    def close(self) -> None:
        self.flush()
        if self.is_lingering or self._transport.is_closing() or not self.is_body_unread():
            self._transport.close()
        else:
            self.linger()

    def linger(self) -> None:
        """Say goodbye, and leave the last word to the client; `Connection.tick` bounds how long."""
        self.flush()
        self.is_lingering = True
        if self._transport.can_write_eof() and not self._transport.is_closing():
            self._transport.write_eof()

    # Spelled out where it is hot; `__getattr__` costs three times as much.
    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class PipelinedFlow(FlowControl):
    """Reads on only when nothing read earlier waits: a pipeline may not outgrow what it is served at."""

    def __init__(self, transport: asyncio.Transport, is_waiting: Callable[[], bool]) -> None:
        super().__init__(transport)
        self._is_waiting = is_waiting

    def resume_reading(self) -> None:
        if self.read_paused and not self._is_waiting():
            super().resume_reading()


class Connection(HttpToolsProtocol):
    """One client connection."""

    max_connections = 1 << 20
    """Further ones are closed at once. `GatewayServer` lowers it to what the process may open."""
    on_lost: Callable[[], None] | None = None
    """Called once when the client is gone; set by whoever works on its behalf now."""
    _head_bytes = 0
    _is_at_rest = False
    """Answered, and nothing came since. Counted in sweeps: a timer per answer costs 2 µs."""
    _linger_bytes = 0
    _linger_ticks = 0
    _last_word = b""
    """What ends this connection as soon as everything asked before is answered."""
    _plain_head = b""
    """The head of a request that asked for another protocol, without that wish."""
    _seen: tuple[object, bool] = (None, False)
    _ticks = 0
    _unfed = b""
    """Read but not parsed: it waits for the pipelined requests before it."""
    _unread_bytes = 0
    _unread_ticks = 0
    _much_ticks = 0
    _most_unread_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.extensions = {EXTENSION: self}
        self.headers = []  # uvicorn has None until the first request begins
        self.corked = CorkedTransport(transport, self._is_body_unread)
        super().connection_made(self.corked)  # type: ignore[arg-type]
        self.flow = PipelinedFlow(self.corked, self._is_waiting)  # type: ignore[arg-type]
        if len(self.connections) > self.max_connections:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        callback, self.on_lost = self.on_lost, None
        if callback is not None:
            callback()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = self.extensions  # type: ignore[typeddict-item]

    def on_headers_complete(self) -> None:
        if len(self.headers) > MAX_HEADERS:
            raise ValueError("too many headers")  # stops the parser; `_parse` answers
        self._head_bytes = 0
        if self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT":
            self._plain_head = _without_upgrade(self.parser, self.url, self.headers)
            return
        super().on_headers_complete()
        self.headers = []  # trailers end up there: they never become headers

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        framing = self._head_bytes - FRAMING_PER_BODY_BYTE * len(body)
        self._head_bytes = framing if framing > 0 else 0

    def on_message_complete(self) -> None:
        self._head_bytes = 0
        if not self._plain_head:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """What uvicorn does here, without its timer for keep-alive."""
        self.corked.flush()
        self.server_state.total_requests += 1
        if self.corked.is_closing():
            return
        if self.flow.read_paused:
            self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        elif self._last_word:
            self._refuse(self._last_word)
            return
        else:
            self._ticks, self._is_at_rest = 0, True
        if self._unfed and not self.pipeline:
            data, self._unfed = self._unfed, b""
            self._feed(data)
            self.flow.resume_reading()

    def data_received(self, data: bytes) -> None:
        if self.corked.is_lingering or self._last_word:
            self._discard(data)
        elif self.pipeline or self._unfed:
            self._unfed += data  # reading is paused: this was on its way already
        else:
            self._feed(data)

    def _feed(self, data: bytes) -> None:
        if self._is_at_rest:
            self._ticks, self._is_at_rest = 0, False
        for start in range(0, len(data), FEED_BYTES):
            if self.corked.is_lingering or self._last_word or self.corked.is_closing():
                return
            if self.pipeline:
                self._unfed = data[start:]
                return
            part = data[start : start + FEED_BYTES]
            self._head_bytes += len(part)
            self._parse(part)
            if self._head_bytes > MAX_HEAD_BYTES or len(self.headers) > MAX_HEADERS:
                self._end(_HEAD_TOO_LARGE)

    def _parse(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._stay_http(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self._end(_HEAD_TOO_LARGE if len(self.headers) > MAX_HEADERS else _MALFORMED)

    def _stay_http(self, rest: bytes) -> None:
        """A server may ignore a wish for another protocol (RFC 9110, 7.8); the parser cannot."""
        head, self._plain_head = self._plain_head, b""
        if not head:
            self._end(_NO_TUNNELS)
            return
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
        self._parse(head + rest)

    def tick(self) -> None:
        """Once a second: does this client take too long for its head, its body, or its answer?"""
        if self._is_unread():
            self.transport.abort()
            return
        if self.corked.is_lingering:
            self._linger_ticks += 1
            if self._linger_ticks > LINGER_TICKS:
                self.corked.close()
            return
        if self._is_at_rest:
            self._ticks += 1
            if self._ticks > REST_TICKS:
                self.transport.close()
            return
        cycle = self.cycle
        is_idle = cycle is None or cycle.response_complete
        is_reading_body = not is_idle and cycle.more_body
        if not (is_idle or is_reading_body):
            self._ticks = 0
            return
        seen = (cycle, is_reading_body)
        self._ticks = self._ticks + 1 if seen == self._seen else 0
        self._seen = seen
        if is_reading_body and self._ticks >= BODY_TICKS:
            # An empty chunk wakes the application, which refuses in the protocol's own shape.
            cycle.message_event.set()
        elif is_idle and self._ticks >= HEAD_TICKS:
            self._refuse(_HEAD_TOO_SLOW)

    def _is_body_unread(self) -> bool:
        return self.cycle is not None and self.cycle.more_body

    def _is_waiting(self) -> bool:
        return bool(self.pipeline or self._unfed)

    def _is_unread(self) -> bool:
        """Whether an answer lies here that the client takes nothing of, or too little of a large one."""
        unread = self.transport.get_write_buffer_size()
        if unread > MUCH_UNREAD_BYTES and self._is_read_slowly(unread):
            return True
        if unread <= MUCH_UNREAD_BYTES:
            self._much_ticks = self._most_unread_bytes = 0
        is_stuck = unread > 0 and unread == self._unread_bytes
        self._unread_ticks = self._unread_ticks + 1 if is_stuck else 0
        self._unread_bytes = unread
        return self._unread_ticks >= UNREAD_TICKS

    def _is_read_slowly(self, unread: int) -> bool:
        self._much_ticks += 1
        self._most_unread_bytes = max(self._most_unread_bytes, unread)
        return self._much_ticks > UNREAD_TICKS + self._most_unread_bytes // SLOWEST_READ_BYTES

    def _discard(self, data: bytes) -> None:
        self._linger_bytes += len(data)
        if self._linger_bytes > LINGER_BYTES:
            self.transport.close()

    def _end(self, answer: bytes) -> None:
        """Answer what cannot be parsed, after everything before it, and close."""
        cycle = self.cycle
        if self.pipeline and cycle.more_body:  # the broken one itself waits: nobody began it
            self.pipeline.popleft()
        elif cycle is None or cycle.response_complete or cycle.more_body:
            self._refuse(answer)
            return
        self._last_word = answer

    def _refuse(self, answer: bytes) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.corked.write(answer)
        self.corked.linger()


_UPGRADE = (b"upgrade", b"http2-settings", b"connection")


def _without_upgrade(
    parser: httptools.HttpRequestParser, url: bytes, headers: Iterable[tuple[bytes, bytes]]
) -> bytes:
    """The head again, as a client would have sent it that never thought of another protocol."""
    first = b"%b %b HTTP/%b\r\n" % (parser.get_method(), url, parser.get_http_version().encode())
    kept = [b"%b: %b\r\n" % pair for pair in headers if pair[0] not in _UPGRADE]
    options = [value.lower() for name, value in headers if name == b"connection"]
    if b"close" in b",".join(options):
        kept.append(b"connection: close\r\n")
    return b"".join((first, *kept, b"\r\n"))


def write_answer(cycle: RequestResponseCycle, head: bytes, body: bytes) -> None:
    """A whole answer in one write; `head` ends with its last header line.

    What uvicorn's `send` does for a start and a body message together, without checking each header by
    two regular expressions: a third of the gateway's time per request. `head` must be of our own making.
    """
    if cycle.disconnected:
        return
    cycle.response_started = cycle.response_complete = True
    cycle.waiting_for_100_continue = False
    tail = b"\r\n" if cycle.keep_alive else b"connection: close\r\n\r\n"
    # Not split into head and body: the cork would take the first part for a head to hold.
    cycle.transport.write_whole(b"".join((head, tail, body)))  # type: ignore[attr-defined]
    cycle.message_event.set()
    if not cycle.keep_alive:
        cycle.transport.close()
    cycle.on_response()


def tick_all(connections: Iterable[Any]) -> None:
    """One sweep over a server's connections."""
    for connection in list(connections):
        if isinstance(connection, Connection):
            connection.tick()
