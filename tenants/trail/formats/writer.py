"""What every format's writer does, and what a row is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

Row = dict[str, Any]
"""One event: the members of its record (`canonical.COLUMNS`, `before` and `after` as JSON texts), and
`chain`, `prev_hash`, `hash`."""


class Writer(Protocol):
    """Writes rows to the file it was made with, in bounded memory."""

    def write(self, rows: Iterable[Row]) -> None: ...

    def close(self) -> None:
        """Writes what the format ends with; the file itself stays open."""
