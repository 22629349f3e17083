"""Where the planes meet: configuration goes down as deltas, reports come up exactly once.

A `Seam` is the only thing a data-plane process knows of the control plane. `postgres.PostgresSeam` is
the real one, `memory.MemorySeam` the public test double; one suite proves both. Processes do not poll a
seam themselves: `follower.ConfigFollower` keeps their configuration current and survives an absent
database, `outbox.ReportOutbox` delivers their reports.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from serving.contract import ConfigChange, Report


class SeamUnavailable(Exception):
    """The other plane cannot be reached now. Keep what you have and ask again."""


@dataclass(frozen=True, slots=True)
class Delta:
    """Answer to "what changed since?".

    `changes` are in version order. When `is_complete`, they are not a difference but everything that
    exists: whatever the asker holds and does not find in them is gone. That is the answer to a first
    question, to an asker who missed pruned deletions, and to one who is ahead of a restored database.
    """

    version: int
    """Ask again from here."""
    history: str
    """Names the line of versions this one belongs to; another history makes the next answer complete."""
    changes: tuple[ConfigChange, ...] = ()
    is_complete: bool = False


class Seam(Protocol):
    async def changes_since(self, version: int, kinds: tuple[str, ...], history: str = "") -> Delta:
        """Entries of `kinds` newer than `version` (0: everything). Raises `SeamUnavailable`."""

    async def send_reports(self, reports: Sequence[Report]) -> None:
        """Store reports; one already stored under its (process, sequence) is left alone.

        All of them are stored, or `SeamUnavailable` is raised and the same ones may be sent again.
        """

    async def wait_for_hint(self, timeout_s: float) -> None:
        """Return when something may have changed, at the latest after `timeout_s`. Never raises."""

    async def close(self) -> None:
        """Release connections. The seam is unusable afterwards."""
