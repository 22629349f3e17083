"""Numbers that never repeat on this host: each start of a worker or of the agent takes the next one.

Gateways and the seam ignore what an older epoch says, so a number must be on disk before it is used. They
are milliseconds of the wall clock where it has moved on, so that a lost or restored state directory does
not start over at numbers that nobody listens to; where the clock was set back, the file counts on.
"""

from __future__ import annotations

import time
from pathlib import Path

from serving.seam.private_file import PrivateFile


class Epochs:
    """Raises `ValueError` when the file holds no number: a disk that damages files is looked at first."""

    def __init__(self, path: Path) -> None:
        self._file = PrivateFile(path)
        content = self._file.read()
        try:
            self._last = int(content) if content else 0
        except ValueError:
            raise ValueError(
                f"{path} should hold the last epoch as a number; restore or correct it"
            ) from None

    def next(self) -> int:
        self._last = max(self._last + 1, time.time_ns() // 1_000_000)
        self._file.replace([str(self._last).encode()])
        return self._last
