"""What is known of one request while it is served, whichever way it came in."""

from __future__ import annotations

import os
import re
from time import monotonic_ns
from typing import TYPE_CHECKING

from serving.gateway.tracecontext import TRACEPARENT, Trace, trace_of
from serving.quotas.book import Binding

if TYPE_CHECKING:
    from serving.gateway.admission import TenantGate
    from serving.gateway.fallback import Fallback
    from serving.gateway.pending import ChunkSink, Payload, Pending
    from serving.gateway.routing import Lane
    from serving.gateway.snapshot import Grant
    from serving.quotas.holding import Reservation

SMALL_BODY_BYTES = 64 << 10
"""Up to here a body is read and parsed at one go; longer ones wait for room and for their turn."""
REQUEST_ID = b"x-request-id"
_OWN_ID = re.compile(rb"(?!tg_)[A-Za-z0-9._-]{1,64}")  # an API key is no id to be repeated


class RequestIds:
    """`req_` and 26 characters: 12 random ones of this process, 14 of a counter."""

    __slots__ = ("_count", "_prefix")

    def __init__(self) -> None:
        self._prefix = "req_" + os.urandom(6).hex()
        self._count = 0

    def next(self) -> str:
        self._count += 1
        return f"{self._prefix}{self._count:014x}"

    def of(self, headers: dict[bytes, bytes]) -> str:
        """The client's own id where it is a sane one, else the next of ours."""
        own = headers.get(REQUEST_ID)
        return own.decode() if own is not None and _OWN_ID.fullmatch(own) else self.next()


class Visit:
    """Filled in step by step; the ways in (`Exchange`, a hot request) add what they need to answer."""

    __slots__ = (
        "binding",
        "endpoint",
        "fallback",
        "gate",
        "grant",
        "headers",
        "is_abandoned",
        "is_recorded",
        "lane",
        "payload",
        "pending",
        "request_id",
        "reservation",
        "started_ns",
        "stream",
        "tenant_id",
        "trace",
    )

    def __init__(self, headers: dict[bytes, bytes], ids: RequestIds) -> None:
        self.started_ns = monotonic_ns()
        self.headers = headers
        self.request_id = ids.of(headers) if REQUEST_ID in headers else ids.next()
        self.endpoint = ""
        self.tenant_id = ""
        self.grant: Grant | None = None
        self.lane: Lane | None = None
        self.gate: TenantGate | None = None
        """Set between entering and leaving: whoever clears it owes the gate its `leave`."""
        self.binding: Binding | None = None
        """The quotas that bind it, if any do, once it asked them."""
        self.reservation: Reservation | None = None
        """Owed a `release`."""
        self.payload: Payload | None = None
        self.pending: Pending | None = None
        """The newest try."""
        self.fallback: Fallback | None = None
        """Set when something else answered than what was asked."""
        self.stream: ChunkSink | None = None
        """Takes the chunks when the answer is to be streamed, whichever try it comes from."""
        self.is_abandoned = False
        self.trace: Trace | None = trace_of(headers) if TRACEPARENT in headers else None
        """Where the client sent one, or the gateway records one."""
        self.is_recorded = False
        """Whether a span is owed."""

    @property
    def peer(self) -> str | None:
        """The address the connection came from; None behind a unix socket."""
        raise NotImplementedError

    @property
    def has_begun(self) -> bool:
        """Whether the client has a part of a streamed answer: nothing else may answer any more."""
        return self.stream is not None and self.stream.has_begun

    def elapsed_us(self) -> int:
        return (monotonic_ns() - self.started_ns) // 1000
