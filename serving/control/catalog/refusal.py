"""The one error of artifact intake: what was refused, and why, in words for the person who uploaded it."""

from __future__ import annotations


class Refused(Exception):
    """An artifact, or one member of it, that this platform does not store.

    `reason` is complete and safe to show; `member` is the path inside the artifact, where there is one.
    """

    def __init__(self, reason: str, member: str | None = None) -> None:
        super().__init__(f"{member}: {reason}" if member else reason)
        self.reason = reason
        self.member = member
