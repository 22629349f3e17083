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
import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

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
    """
    sha256, size_bytes, file_count = digest(content, artifact_format)
    home = Path(settings.ARTIFACTS_DIR) / sha256[:2] / sha256
    home.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
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
    return Stored(sha256, size_bytes, file_count, path_of(sha256, artifact_format))


def digest(content: Path, artifact_format: str) -> tuple[str, int, int]:
    """sha256, size in bytes and number of files. A directory's digest is that of its sorted manifest."""
    if artifact_format in SINGLE_FILES:
        file = content / SINGLE_FILES[artifact_format]
        return file_sha256(file), file.stat().st_size, 1
    manifest = hashlib.sha256()
    size_bytes = file_count = 0
    for name, file in sorted((str(f.relative_to(content)), f) for f in content.rglob("*") if f.is_file()):
        length = file.stat().st_size
        manifest.update(f"{file_sha256(file)} {length} {name}\n".encode())
        size_bytes += length
        file_count += 1
    return manifest.hexdigest(), size_bytes, file_count


def file_sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


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
