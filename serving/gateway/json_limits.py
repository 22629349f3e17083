"""How deep JSON may be nested. Pure, in time linear in the body, without building any object."""

from __future__ import annotations

import re

import numpy as np

from serving.errors import InvalidJson

MAX_DEPTH = 32
"""Tensors nest at most eight deep, and the protocols' own shapes four."""
_CHUNK = 1 << 16
_KEPT = b'"[]{}'
_DROPPED = bytes(byte for byte in range(256) if byte not in _KEPT)
_STRING = re.compile(rb'"[^"]*"')
_STEP = np.zeros(256, np.int8)
_STEP[[ord("["), ord("{")]] = 1
_STEP[[ord("]"), ord("}")]] = -1


def check_depth(content: bytes | memoryview) -> None:
    """Raises `InvalidJson` for more than `MAX_DEPTH` levels.

    Most bodies hold fewer brackets than that altogether: two counts, a tenth of a microsecond each. The
    rest lose everything but quotes and brackets, then their strings. Text that is not JSON may pass or
    not: the decoder that comes next refuses it either way.
    """
    text = content if isinstance(content, bytes) else bytes(content)
    if text.count(b"[") + text.count(b"{") <= MAX_DEPTH:
        return
    if _depth(_brackets(text)) > MAX_DEPTH:
        raise InvalidJson(
            f"the body is nested more than {MAX_DEPTH} levels deep", numbers={"max_depth": MAX_DEPTH}
        )


def _brackets(text: bytes) -> bytes:
    """The brackets outside of strings, in order."""
    if b"\\" in text:  # escaped backslashes first: what is left before a quote escapes it
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    kept = text.translate(None, _DROPPED)
    return _STRING.sub(b"", kept) if b'"' in kept else kept


def _depth(brackets: bytes) -> int:
    """The deepest level, found out no further than is needed to know that it is too deep."""
    level = deepest = 0
    for start in range(0, len(brackets), _CHUNK):
        steps = _STEP[np.frombuffer(brackets[start : start + _CHUNK], np.uint8)]
        levels = np.cumsum(steps, dtype=np.int32)
        deepest = max(deepest, level + int(levels.max()))
        if deepest > MAX_DEPTH:
            break
        level += int(levels[-1])
    return deepest
