"""W3C Trace Context (Recommendation of 2021-11-23, level 1): which trace a request belongs to.

Pure. A request whose `traceparent` is malformed begins a trace of its own; one without any has none, unless
the gateway records it: most clients ask for no trace, and theirs should cost nothing. Ids come from the
process's Mersenne Twister, since they need to be unique, not secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from random import getrandbits
from typing import NamedTuple

TRACEPARENT = b"traceparent"
TRACESTATE = b"tracestate"
SAMPLED = 0x01
MAX_MEMBERS = 32
MAX_TRACESTATE_BYTES = 512
"""What must be passed on at least; a longer list is dropped whole, never cut inside a member."""

_PARENT = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[\x20-\x7e]*)?")
_KEY = rb"(?:[a-z][a-z0-9_\-*/]{0,255}|[a-z0-9][a-z0-9_\-*/]{0,240}@[a-z][a-z0-9_\-*/]{0,13})"
_MEMBER = re.compile(_KEY + rb"=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]")
_NO_TRACE, _NO_SPAN = b"0" * 32, b"0" * 16
_NO_VERSION = b"ff"


class Trace(NamedTuple):
    """The gateway's own span in a trace; ids in lower-case hexadecimal."""

    trace_id: str
    span_id: str
    parent_id: str
    """The caller's span, empty where the trace begins here."""
    flags: int
    state: str
    """The caller's `tracestate`, empty when there was none worth passing on."""

    @property
    def is_sampled(self) -> bool:
        """Whether the caller records this trace."""
        return bool(self.flags & SAMPLED)

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{self.flags:02x}"


def begin() -> Trace:
    """A new trace, recorded by nobody yet."""
    ids = f"{getrandbits(192) or 1:048x}"
    return Trace(ids[:32], ids[32:], "", 0, "")


def trace_of(headers: dict[bytes, bytes], raw: Iterable[tuple[bytes, bytes]] = ()) -> Trace | None:
    """The caller's trace continued, a new one when its header is malformed, None without the header.

    `raw` are the header fields as they came, asked only when there is a `traceparent`: one that was sent
    twice is malformed, while several `tracestate` fields are one list.
    """
    parent = headers.get(TRACEPARENT)
    if parent is None:
        return None
    parents, states = [], []
    for name, value in raw:
        if name == TRACEPARENT:
            parents.append(value)
        elif name == TRACESTATE:
            states.append(value)
    if len(parents) > 1:
        return begin()
    if not states and TRACESTATE in headers:
        states = [headers[TRACESTATE]]
    return _continued(parent.strip(b" \t"), b",".join(states))


def _continued(parent: bytes, state: bytes) -> Trace:
    found = _PARENT.fullmatch(parent)
    if found is None:
        return begin()
    version, trace_id, parent_id, flags, rest = found.groups()
    if version == _NO_VERSION or (version == b"00" and rest is not None):
        return begin()
    if trace_id == _NO_TRACE or parent_id == _NO_SPAN:
        return begin()
    # Of the flags of a newer version only `sampled` is known to mean the same.
    known = int(flags, 16) & SAMPLED
    return Trace(trace_id.decode(), new_span_id(), parent_id.decode(), known, parse_state(state))


def new_span_id() -> str:
    return f"{getrandbits(64) or 1:016x}"


def parse_state(state: bytes) -> str:
    """The list of members as it is to be passed on; empty when it is malformed or too long."""
    if not state or len(state) > MAX_TRACESTATE_BYTES:
        return ""
    members = [member for part in state.split(b",") if (member := part.strip(b" \t"))]
    keys = {member.partition(b"=")[0] for member in members}
    if len(members) > MAX_MEMBERS or len(keys) != len(members):
        return ""
    if not all(map(_MEMBER.fullmatch, members)):
        return ""
    return b",".join(members).decode()
