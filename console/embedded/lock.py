"""One running instance per directory, by a kernel lock that vanishes with its holder."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from console.embedded.errors import AlreadyRunning


class DirectoryLock:
    """`flock` on a file in the directory; the file names the holder's pid for the refusal message."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    @property
    def is_ours(self) -> bool:
        return self._descriptor is not None

    def acquire(self) -> None:
        """Raises `AlreadyRunning` naming the holder, `OSError` when the directory cannot be written."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(descriptor)
            os.close(descriptor)
            raise AlreadyRunning(str(self._path.parent), holder, command_of(holder)) from None
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        self._descriptor = descriptor

    def release(self) -> None:
        """The file stays: removing it would let two processes lock two different files."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def is_locked(path: Path) -> bool:
    """Whether a `DirectoryLock` on this file is held now; False when it was never made or is not ours to open."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def command_of(pid: int | None) -> str:
    """The command line of a process, shortened; empty when it is gone or not ours to read."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    return raw.replace(b"\0", b" ").decode(errors="replace").strip()[:120]


def _holder(descriptor: int) -> int | None:
    text = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
    return int(text) if text.isdigit() else None
