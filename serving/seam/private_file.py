"""Files that hold key digests or tenants' names: replaced whole or not at all, readable by us alone."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from threading import Lock


class PrivateFile:
    """One file, mode 0600, in a directory made 0700. Writers in several threads take turns."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = Lock()

    def replace(self, chunks: Iterable[bytes]) -> None:
        """Write `chunks` as the new content; after a crash the old or the new one is there, never a part."""
        with self._lock:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            draft = self.path.with_name(f".{self.path.name}.{os.getpid()}")
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.writelines(chunks)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self.path)

    def remove(self) -> None:
        with self._lock:
            self.path.unlink(missing_ok=True)

    def read(self) -> bytes | None:
        """The content, or None when there is no file."""
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return None
