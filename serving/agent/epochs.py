"""Numbers that never repeat on this host: each start of a worker or of the agent takes the next one.

Gateways and the seam ignore what an older epoch says, so a number must be on disk before it is used.
"""

from __future__ import annotations

from pathlib import Path

from serving.seam.private_file import PrivateFile


class Epochs:
    """Raises `ValueError` when the file holds no number: starting over could repeat one."""

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
        self._last += 1
        self._file.replace([str(self._last).encode()])
        return self._last
