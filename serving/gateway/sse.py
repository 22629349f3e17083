"""Server-sent events (WHATWG HTML, 9.2) as bytes: what a streamed answer looks like on its way out. Pure.

An event is `data: ` and one line of JSON. Comments keep proxies and clients from taking silence for death;
parsers drop them.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from serving.errors import DataPlaneError
from serving.gateway.pending import Answer, Payload
from serving.gateway.receipts import Spent
from serving.gateway.routing import Lane
from serving.gateway.visit import Visit

CONTENT_TYPE = b"text/event-stream"
HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx would hold events back until they fill a buffer
)
KEEP_ALIVE = b": keep-alive\n\n"
DONE = b"data: [DONE]\n\n"
"""How OpenAI's streams end."""

_encode = msgspec.json.Encoder().encode


class StreamShape(Protocol):
    """One protocol's events, each ready to be written."""

    async def chunk(self, lane: Lane, answer: Answer, payload: Payload) -> bytes:
        """The event of one part of the answer. Raises `DataPlaneError` when that holds not what was asked for."""
        ...

    def end(self, lane: Lane, receipt: bytes) -> bytes:
        """The last event or events; `receipt` is a JSON object."""
        ...

    def error(self, error: DataPlaneError, request_id: str) -> bytes:
        """The last event of a stream that broke."""
        ...


def is_wanted(headers: dict[bytes, bytes]) -> bool:
    """Whether the client asks for events (`accept: text/event-stream`)."""
    accept = headers.get(b"accept")
    return accept is not None and CONTENT_TYPE in accept.lower()


def event(json: bytes) -> bytes:
    """`json` holds no line break, as encoders leave none."""
    return b"data: %b\n\n" % json


def receipt(
    visit: Visit, lane: Lane, answer: Answer, spent: Spent, *, chunks: int, first_chunk_us: int
) -> bytes:
    """The latency receipt as a JSON object: what whole answers say in their headers. Times in milliseconds.

    The parts of `timing` but `first_chunk` sum to `total`; `first_chunk` is when the first event left.
    """
    stages = answer.result.stages
    timing = {
        "gateway": spent.gateway_us / 1000,
        "queue": stages.queue_us / 1000,
        "batch_wait": stages.batch_wait_us / 1000,
        "execute": (stages.execute_us + stages.interrupted_us) / 1000,
        "post": stages.post_us / 1000,
        "total": spent.total_us / 1000,
        "first_chunk": first_chunk_us / 1000,
    }
    facts: dict[str, object] = {
        "request_id": visit.request_id,
        "timing": timing,
        "chunks": chunks,
        "batch_size": stages.batch_rows,
        "batch_close": stages.close,
        "predicted_ms": stages.predicted_us / 1000,
        "device_ms": stages.device_us / 1000,
        "cost": round(spent.cost, 9),
    }
    if stages.interrupted_us:
        facts["interrupted_ms"] = stages.interrupted_us / 1000
    if visit.fallback is not None:
        facts["fallback"] = visit.fallback.text
    return _encode(facts)
