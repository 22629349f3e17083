"""What is posted to a receiver, and what its answer means. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import msgspec


class Post(NamedTuple):
    """One HTTP POST of JSON. `url` may carry a secret: it is never shown or logged."""

    url: str
    body: bytes
    headers: dict[str, str] = {}


class Said(NamedTuple):
    """What a robot answered, which is status 200 for refusals too. `error` is empty where it took the message."""

    error: str = ""
    is_busy: bool = False
    """It asked for fewer messages: worth another attempt."""


def json_post(url: str, body: Any, headers: dict[str, str] | None = None) -> Post:
    return Post(url, msgspec.json.encode(body), headers or {})


def said(answer: bytes, code_field: str, text_field: str, busy: Collection[int]) -> Said:
    """What `answer` says by its code. A body that cannot be read says nothing against the message."""
    try:
        found = msgspec.json.decode(answer)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Said()
    code = found.get(code_field, 0) if isinstance(found, dict) else 0
    if not isinstance(code, int) or code == 0:
        return Said()
    return Said(f"It answered {code}: {str(found.get(text_field, ''))[:150]}", code in busy)
