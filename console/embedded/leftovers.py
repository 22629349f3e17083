"""A server that outlived its launcher for a moment, and files that outlived a server.

Whoever calls this holds the directory's lock, so a live server in the directory is one that is still
shutting down after its launcher was killed: it is waited for, never fought.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from console.embedded.errors import ServiceError

PATIENCE_S = 60.0


def wait_for_leftover(name: str, pid_file: Path, data_dir: Path) -> None:
    """Return once no server works in `data_dir`; then `pid_file` is gone too.

    After kill -9 the file names a dead process, or an unrelated one that got its number, for which a
    server would refuse to start. Raises `ServiceError` when the old server does not end.
    """
    deadline = time.monotonic() + PATIENCE_S
    while (pid := _first_number(pid_file)) and _works_in(pid, data_dir):
        if time.monotonic() > deadline:
            raise ServiceError(f"{name} (process {pid}) still runs in {data_dir}; stop it first")
        time.sleep(0.05)
    pid_file.unlink(missing_ok=True)


def _first_number(path: Path) -> int | None:
    try:
        text = path.read_text().split("\n", 1)[0].strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _works_in(pid: int, directory: Path) -> bool:
    """A live server's working directory is its data directory; a zombie's is unreadable."""
    try:
        return os.path.samefile(f"/proc/{pid}/cwd", directory)
    except OSError:
        return False
