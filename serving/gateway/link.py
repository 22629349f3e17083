"""One connection to one worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from serving.framed import FramedConnection
from serving.wire import Frame


class LinkOwner(Protocol):
    """Who is told what happens on a link."""

    def on_frames(self, link: Link, frames: Sequence[Frame]) -> None:
        """May raise `FrameError` or `msgspec.DecodeError`: the link is closed then."""

    def on_lost(self, link: Link) -> None: ...


class Link(FramedConnection):
    def __init__(self, owner: LinkOwner) -> None:
        super().__init__()
        self._owner = owner
        self.received = 0
        """Reads so far: whoever watches for silence compares two looks."""

    def buffer_updated(self, nbytes: int) -> None:
        self.received += 1
        super().buffer_updated(nbytes)

    def on_frames(self, frames: Sequence[Frame]) -> None:
        self._owner.on_frames(self, frames)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._owner.on_lost(self)
