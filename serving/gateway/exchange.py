"""One HTTP request and its answer, on plain ASGI."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from serving.errors import BodyTooLarge, ClientClosedRequest, DataPlaneError, InvalidRequest, RequestTimeout
from serving.gateway.connections import EXTENSION, Connection, write_answer
from serving.gateway.refusals import Headers
from serving.gateway.tracecontext import trace_of
from serving.gateway.visit import SMALL_BODY_BYTES, RequestIds, Visit

if TYPE_CHECKING:
    from serving.gateway.streaming import EventWriter

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Keep = Callable[[bytes, bytes], Awaitable[None]]
"""Takes the header lines of a good answer, and its body."""

BODY_TIMEOUT_S = 30.0
SLOWEST_BYTES_PER_S = 64 << 10
"""A body may take `BODY_TIMEOUT_S`, and longer only while it comes at least this fast."""
_SINGLE = (
    b"authorization",
    b"x-api-key",
    b"content-length",
    b"inference-header-content-length",
    b"x-tidegate-deadline-ms",
    b"x-tidegate-priority",
    b"idempotency-key",
)


class Exchange(Visit):
    """One request over ASGI: how its body is read and its answer sent."""

    __slots__ = (
        "_receive",
        "_send",
        "connection",
        "events",
        "is_body_abandoned",
        "is_body_read",
        "is_replayed",
        "is_started",
        "keep",
        "method",
        "path",
        "scope",
    )

    def __init__(self, scope: Scope, receive: Receive, send: Send, ids: RequestIds) -> None:
        super().__init__(dict(scope["headers"]), ids)
        if self.trace is not None:
            self.trace = trace_of(self.headers, scope["headers"])
        self.scope = scope
        self._receive = receive
        self._send = send
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.connection: Connection | None = (scope.get("extensions") or {}).get(EXTENSION)
        self.is_body_read = False
        self.is_body_abandoned = False
        self.is_started = False
        self.is_replayed = False
        """The answer is one that was given before."""
        self.keep: Keep | None = None
        """Told the answer before the client is. With it the work goes on when the client leaves."""
        self.events: EventWriter | None = None
        """Set when the answer is streamed."""

    @property
    def is_gone(self) -> bool:
        """Whether the client is known to have left (only under uvicorn)."""
        return bool(getattr(getattr(self._send, "__self__", None), "disconnected", False))

    @property
    def peer(self) -> str | None:
        client = self.scope.get("client")
        return client[0] if client else None

    @property
    def is_local(self) -> bool:
        """Whether the client is on this machine: a loopback address or a unix socket."""
        client = self.scope.get("client")
        return client is None or client[0] in ("::1", "localhost") or client[0].startswith("127.")

    def large_body_bytes(self, limit_bytes: int) -> int:
        """What the body may take in memory; 0 for a small one."""
        if b"transfer-encoding" in self.headers:
            return limit_bytes
        length = self.headers.get(b"content-length", b"0")
        size = int(length[:20]) if length.isdigit() else limit_bytes
        return 0 if size <= SMALL_BODY_BYTES else min(size, limit_bytes)

    def check_headers(self) -> None:
        """Raises `InvalidRequest` for a header that must not be sent twice."""
        raw = self.scope["headers"]
        if len(raw) == len(self.headers):
            return
        names = [name for name, _ in raw]
        for name in _SINGLE:
            if names.count(name) > 1:
                raise InvalidRequest(f"the header {name.decode()} was sent more than once")

    async def read_body(self, limit_bytes: int) -> bytes:
        """The whole body. Raises `BodyTooLarge`, `RequestTimeout` or `ClientClosedRequest`."""
        try:
            return await self._read(limit_bytes)
        except DataPlaneError:
            self.is_body_abandoned = True
            raise

    async def _read(self, limit_bytes: int) -> bytes:
        self._check_length(limit_bytes)
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientClosedRequest("the client is gone")
        body: bytes = message.get("body", b"")
        if message.get("more_body", False):
            body = await self._read_rest(body, limit_bytes)
        elif len(body) > limit_bytes:
            raise _too_large(limit_bytes)
        self.is_body_read = True
        return body

    async def _read_rest(self, first: bytes, limit_bytes: int) -> bytes:
        parts, size, is_more = [first], len(first), True
        while is_more:
            if size > limit_bytes:
                raise _too_large(limit_bytes)
            if self.elapsed_us() / 1e6 >= BODY_TIMEOUT_S + size / SLOWEST_BYTES_PER_S:
                raise RequestTimeout(f"the body arrived too slowly: {size} bytes so far")
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientClosedRequest("the client is gone")
            part = message.get("body", b"")
            parts.append(part)
            size += len(part)
            is_more = message.get("more_body", False)
        if size > limit_bytes:
            raise _too_large(limit_bytes)
        return b"".join(parts)

    def _check_length(self, limit_bytes: int) -> None:
        length = self.headers.get(b"content-length")
        if length is not None and length.isdigit() and int(length[:20]) > limit_bytes:
            raise _too_large(limit_bytes)

    async def respond(self, status: int, headers: Headers, body: bytes) -> None:
        """Send the answer; a body that was given up, or is large and unread, costs the connection."""
        self.is_started = True
        if self.is_body_abandoned or (not self.is_body_read and self._has_more_to_read()):
            headers.append((b"connection", b"close"))
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})

    async def respond_whole(self, lines: bytes, body: bytes) -> None:
        """A 200 with these header lines (`name: value` and CRLF each, of our own making), at one stroke."""
        cycle = getattr(self._send, "__self__", None)
        if not isinstance(cycle, RequestResponseCycle) or self.connection is None:
            pairs = (line.split(b": ", 1) for line in lines.split(b"\r\n") if line)
            await self.respond(200, [(name, value) for name, value in pairs], body)
            return
        self.is_started = True
        if cycle.flow.write_paused and not cycle.disconnected:
            await cycle.flow.drain()
        write_answer(cycle, b"HTTP/1.1 200 OK\r\n" + lines, body)
        if cycle.flow.write_paused:
            # The request is not over before most of its answer is taken: an answer nobody reads
            # counts against its tenant's concurrency for as long as it lies in our memory.
            await cycle.flow.drain()

    async def start_stream(self, headers: Headers) -> None:
        """Begin an answer of unknown length; `write_part` follows, and ends it."""
        self.is_started = True
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})

    async def write_part(self, data: bytes, *, is_last: bool = False) -> None:
        """Write a part; returns when the client has room for the next."""
        await self._send({"type": "http.response.body", "body": data, "more_body": not is_last})
        cycle = getattr(self._send, "__self__", None)
        if isinstance(cycle, RequestResponseCycle) and cycle.flow.write_paused and not cycle.disconnected:
            await cycle.flow.drain()

    def _has_more_to_read(self) -> bool:
        length = self.headers.get(b"content-length", b"0")
        is_small = length.isdigit() and int(length[:20]) <= SMALL_BODY_BYTES
        return not is_small or b"transfer-encoding" in self.headers or b"expect" in self.headers


def _too_large(limit_bytes: int) -> BodyTooLarge:
    return BodyTooLarge(f"the body is larger than {limit_bytes} bytes", numbers={"limit_bytes": limit_bytes})
