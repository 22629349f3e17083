"""`Idempotency-Key` (IETF draft-ietf-httpapi-idempotency-key-header-07): what a key is, what it stands for.

Pure. A key belongs to its tenant, whichever API key sends it. It stands for one request: route, layout of
the body, and the body's bytes. What is kept of an answer is a `Kept`, with which the same bytes can be sent again.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Any

import msgspec

from serving.errors import DataPlaneError, InvalidRequest, from_code

IDEMPOTENCY_KEY = b"idempotency-key"
MAX_KEY_CHARS = 255
MAX_ANSWER_BYTES = 1 << 20
"""A larger answer is not kept: its key still keeps the request from running twice."""
_QUOTED = re.compile(rb'"((?:[\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"')
_BARE = re.compile(rb"[\x21\x23-\x2b\x2d-\x3a\x3c-\x5b\x5d-\x7e]+")
_LAYOUT = b"inference-header-content-length"
_EXECUTED = frozenset({"engine_failed", "poisoned_request"})
_OF_THIS_EXCHANGE = (b"x-request-id: ", b"traceparent: ", b"ratelimit", b"x-ratelimit-")


class Kept(msgspec.Struct, array_like=True, frozen=True):
    """One outcome as it is stored: an answer's header lines and body, or a failure's facts."""

    request_id: str
    lines: bytes = b""
    body: bytes = b""
    code: str = ""
    message: str = ""
    param: str | None = None
    numbers: dict[str, Any] = {}


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Kept).decode


def parse_key(value: bytes) -> bytes:
    """The key: a quoted string, as the draft has it, or bare, as most clients send it.

    Raises `InvalidRequest`.
    """
    value = value.strip(b" \t")
    if found := _QUOTED.fullmatch(value):
        key = re.sub(rb'\\(["\\])', rb"\1", found.group(1))
    else:
        key = value if _BARE.fullmatch(value) else b""
    if not 1 <= len(key) <= MAX_KEY_CHARS:
        raise InvalidRequest(
            f"Idempotency-Key is a quoted string or a bare word of 1 to {MAX_KEY_CHARS} visible characters"
        )
    return key


def fingerprint(path: str, headers: dict[bytes, bytes], body: bytes) -> bytes:
    """16 bytes that only the same request has. Takes a millisecond per megabyte."""
    digest = blake2b(path.encode("utf-8", "surrogateescape"), digest_size=16)
    digest.update(b"\0" + headers.get(_LAYOUT, b"") + b"\0")
    digest.update(body)
    return digest.digest()


def record_name(tenant_id: str, key: bytes) -> str:
    """Names the key's record whatever characters it holds."""
    digest = blake2b(tenant_id.encode() + b"\0" + key, digest_size=16)
    return f"{tenant_id}:{digest.hexdigest()}"


def keep_answer(request_id: str, lines: bytes, body: bytes) -> Kept:
    """`lines` are header lines with CRLF; those that belong to one exchange only are left out."""
    kept = [line for line in lines.split(b"\r\n") if line and not line.startswith(_OF_THIS_EXCHANGE)]
    return Kept(request_id, b"".join(line + b"\r\n" for line in kept), body)


def keep_failure(request_id: str, error: DataPlaneError) -> Kept | None:
    """A failure of a request that ran, and would run and fail again; None for every other."""
    if error.code not in _EXECUTED:
        return None
    return Kept(request_id, b"", b"", error.code, error.message, error.param, error.numbers)


def failure_of(kept: Kept) -> DataPlaneError | None:
    if not kept.code:
        return None
    return from_code(kept.code, kept.message, param=kept.param, numbers=kept.numbers)


def encode(kept: Kept) -> bytes:
    return _encode(kept)


def decode(raw: bytes) -> Kept:
    """Raises `msgspec.DecodeError` for what is not ours."""
    return _decode(raw)
