"""The head a connection sent last, so that the same head again is not parsed again.

Clients repeat their heads byte for byte, the body's length apart. What follows from equal bytes is equal:
the route, the headers, that nothing asks for more than a hot route gives. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from serving.gateway.visit import SMALL_BODY_BYTES

if TYPE_CHECKING:
    from serving.gateway.hot import Route
    from serving.gateway.routing import Lane
    from serving.gateway.snapshot import Grant

LENGTH = b"content-length"
MAX_HEAD_BYTES = 4096
"""Longer heads are not kept: one lies here for each connection."""
MAX_LENGTH_DIGITS = 6


class Again(NamedTuple):
    """A request whose head is known."""

    headers: dict[bytes, bytes]
    body: bytes
    is_whole: bool
    """Otherwise the body is still to come: many clients send it in a second segment."""


_new_again = tuple.__new__
"""Half the cost of calling the named tuple."""


@dataclass(frozen=True, slots=True, repr=False)
class KnownHead:
    """A head that keeps the connection open, cut in two around the digits of its `content-length`.

    It holds the client's key, so it has no `repr`.
    """

    before: bytes
    digits: bytes
    after: bytes
    headers: dict[bytes, bytes]
    route: Route
    grant: Grant
    lane: Lane | None
    """None where each request has to be routed."""

    def match(self, data: bytes) -> Again | None:
        """The request, if `data` is exactly one with this head: with its whole body, or without any of it yet."""
        before = self.before
        if not data.startswith(before):
            return None
        start = len(before)
        end = data.find(b"\r", start, start + MAX_LENGTH_DIGITS)
        digits = data[start:end]
        if end < 0 or not digits.isdigit() or not data.startswith(self.after, end):
            return None
        body = data[end + len(self.after) :]
        size = int(digits)
        if (size != len(body) and body) or size > SMALL_BODY_BYTES:
            return None
        headers = self.headers
        if digits != self.digits:
            headers = headers | {LENGTH: digits}
        return _new_again(Again, (headers, body, size == len(body)))


def cut(head: bytes) -> tuple[bytes, bytes, bytes] | None:
    """What is before, of, and after the digits of the one `content-length`.

    None for a head that is not plain: lines that end otherwise than by CRLF could end it earlier than it seems.
    """
    is_plain = head.find(b"\r\n\r\n") == len(head) - 4 and head.count(b"\n") == head.count(b"\r\n")
    at = head.lower().find(b"\r\n" + LENGTH + b":")
    if at < 0 or not is_plain or len(head) > MAX_HEAD_BYTES:
        return None
    start = at + len(LENGTH) + 3
    if head[start : start + 1] == b" ":
        start += 1
    end = head.find(b"\r", start)
    digits = head[start:end]
    return (head[:start], digits, head[end:]) if digits.isdigit() else None
