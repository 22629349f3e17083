"""Open Inference Protocol answers in parts: each event is a whole response that holds one part.

The last event has the shape of the others with nothing in it, and `receipt` besides, so that a client that
joins parts needs no special case.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from serving.errors import DataPlaneError
from serving.gateway import sse
from serving.gateway.pending import Answer, Payload
from serving.gateway.routing import Lane

_encode = msgspec.json.Encoder().encode
Body = Callable[[Lane, Answer, Payload], Awaitable[bytes]]
ErrorBody = Callable[[DataPlaneError, str], bytes]


class OipEvents:
    """`body` makes the response of one part; `empty` is the last member of one without content."""

    def __init__(self, body: Body, error_body: ErrorBody, client_id: str, empty: bytes) -> None:
        self._body = body
        self._error_body = error_body
        self._client_id = client_id
        self._empty = empty

    async def chunk(self, lane: Lane, answer: Answer, payload: Payload) -> bytes:
        return sse.event(await self._body(lane, answer, payload))

    def end(self, lane: Lane, receipt: bytes) -> bytes:
        head = identity(lane, self._client_id)
        return sse.event(b'{%b,%b,"receipt":%b}' % (head, self._empty, receipt))

    def error(self, error: DataPlaneError, request_id: str) -> bytes:
        return sse.event(self._error_body(error, request_id))


def identity(lane: Lane, client_id: str) -> bytes:
    """The members that say who answers whom."""
    head = b'"model_name":%b,"model_version":"%b"' % (lane.model_json, lane.number_header)
    return b'%b,"id":%b' % (head, _encode(client_id)) if client_id else head
