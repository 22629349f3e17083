"""The artifact store: bytes named by their sha256, written once, never changed.

Layout under `ARTIFACTS_DIR`:

    ab/abcdef…/            the unpacked directory, or the directory of one `model.pt2` / `model.onnx`
    .staging/<random>/     what is being received; locked by its process while it lives

An artifact appears by one rename of a complete, synced, read-only directory, so a crash at any point
leaves either nothing or everything. Staging directories of dead processes are swept.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from serving.digests import digest

SINGLE_FILES = {"pt2": "model.pt2", "onnx": "model.onnx"}
"""Formats that are one file, and the name it is stored under."""
_CHUNK_BYTES = 1 << 20
_SWEEP_AFTER_S = 60.0


@dataclass(frozen=True, slots=True)
class Stored:
    sha256: str
    size_bytes: int
    file_count: int
    path: Path


def path_of(sha256: str, artifact_format: str) -> Path:
    """Where an artifact of this content lives, whether or not it is there."""
    home = Path(settings.ARTIFACTS_DIR) / sha256[:2] / sha256
    return home / SINGLE_FILES[artifact_format] if artifact_format in SINGLE_FILES else home


@contextlib.contextmanager
def staging() -> Iterator[Path]:
    """A fresh private directory on the store's own file system; removed afterwards if it is still there."""
    root = Path(settings.ARTIFACTS_DIR) / ".staging"
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    sweep(now=time.time())
    home = root / secrets.token_hex(8)
    home.mkdir(mode=0o700)
    lock = os.open(home, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield home
    finally:
        _remove(home)
        os.close(lock)


def sweep(now: float) -> int:
    """Remove what processes that died left in staging; the number removed. Live ones hold a lock."""
    removed = 0
    for home in (Path(settings.ARTIFACTS_DIR) / ".staging").glob("*"):
        with contextlib.suppress(FileNotFoundError):
            # Young directories are spared: their owner may be between mkdir and flock.
            if now - home.stat().st_mtime >= _SWEEP_AFTER_S and _is_abandoned(home):
                _remove(home)
                removed += 1
    return removed


def promote(content: Path, artifact_format: str) -> Stored:
    """Move a complete directory from staging into the store under its content's name.

    The same content twice is one artifact; two registrations at once are safe, the second finds the first.
    A stored artifact that is no longer what its name says is replaced by the content that is.
    """
    single = SINGLE_FILES.get(artifact_format)
    said = digest(content / single if single else content)
    sha256 = said.sha256
    home = Path(settings.ARTIFACTS_DIR) / sha256[:2] / sha256
    home.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if home.exists() and digest(path_of(sha256, artifact_format)).sha256 != sha256:
        _remove(home)
    _seal(content)
    try:
        content.rename(home)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
    else:
        _sync(home.parent)
    # After the rename: moving a directory needs write permission on the directory itself.
    home.chmod(0o500)
    return Stored(sha256, said.size_bytes, said.file_count, path_of(sha256, artifact_format))


def _seal(content: Path) -> None:
    """Everything on disk and read-only before the directory gets its final name."""
    for path in sorted(content.rglob("*"), reverse=True):
        if path.is_dir():
            path.chmod(0o500)
        else:
            path.chmod(0o400)
        _sync(path)
    _sync(content)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_abandoned(home: Path) -> bool:
    descriptor = os.open(home, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def _remove(home: Path) -> None:
    """Sealed directories need their write permission back before they can be emptied."""
    if not home.exists():
        return
    for folder in [home, *(p for p in home.rglob("*") if p.is_dir() and not p.is_symlink())]:
        folder.chmod(0o700)
    shutil.rmtree(home)
