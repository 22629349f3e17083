"""What a refusal looks like: status, headers and body, in the shape of the protocol that was spoken."""

from __future__ import annotations

import math
import time

from serving.errors import DataPlaneError
from serving.gateway.protocols import oip, openai
from serving.gateway.visit import Visit
from serving.quotas import fields

Headers = list[tuple[bytes, bytes]]

JSON_TYPE = (b"content-type", b"application/json")


def refusal(visit: Visit, error: DataPlaneError, *, is_openai: bool) -> tuple[Headers, bytes]:
    """Its own headers, which `closing` follows, and the body; the status is the error's."""
    body = (openai.error if is_openai else oip.error)(error, visit.request_id)
    headers = [JSON_TYPE, *_headers(error, is_openai)]
    if visit.lane is not None:
        headers.append((b"x-tidegate-model-version", visit.lane.number_header))
    if visit.binding is not None:
        headers += fields.pairs(visit.binding, time.time())
    headers.append((b"server-timing", b"total;dur=%.3f" % (visit.elapsed_us() / 1000)))
    return headers, body


def closing(visit: Visit, body: bytes) -> Headers:
    """The headers that every answer ends with, those of good inference apart."""
    headers = [(b"content-length", b"%d" % len(body)), (b"x-request-id", visit.request_id.encode())]
    if visit.trace is not None:
        headers.append((b"traceparent", visit.trace.traceparent.encode()))
    return headers


def _headers(error: DataPlaneError, is_openai: bool) -> Headers:
    headers: Headers = []
    if error.retry_after_s is not None:
        headers.append((b"retry-after", b"%d" % max(1, math.ceil(error.retry_after_s))))
        headers.append((b"retry-after-ms", b"%d" % max(1, math.ceil(error.retry_after_s * 1000))))
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if error.status == 405:
        headers.append((b"allow", str(error.numbers.get("allow", "")).encode()))
    if is_openai and not error.is_retryable:
        headers.append((b"x-should-retry", b"false"))
    return headers
