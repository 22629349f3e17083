"""Private directories of the embedded services, short enough for unix socket paths."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from pathlib import Path

from console.embedded.errors import ServiceError

# sun_path holds 107 bytes; the longest name below a run directory is a replica's socket
# ("/r/" + "rep_" + 16 characters + ".sock" = 28), which leaves 79. Commas separate socket directories.
MAX_RUN_DIR_BYTES = 76


def private_directory(path: Path) -> Path:
    """Create with mode 0700, or tighten an existing one. Raises `ServiceError` when it is not ours."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.lstat()
        if status.st_uid != os.geteuid() or not path.is_dir() or path.is_symlink():
            raise ServiceError(f"{path} belongs to another user; choose another directory (--state-dir)")
        path.chmod(0o700)
    except OSError as error:
        raise ServiceError(f"cannot write {path}: {error.strerror}; choose another --state-dir") from error
    return path


def run_directory(state_dir: Path) -> Path:
    """`<state>/run`, or a private directory under /tmp named after the state directory when too long."""
    wanted = state_dir / "run"
    if len(os.fsencode(wanted)) <= MAX_RUN_DIR_BYTES and "," not in str(wanted):
        return private_directory(wanted)
    return private_directory(_short_name(state_dir, os.geteuid()))


def account_directory(run_dir: Path, user: int, group: int) -> Path:
    """A socket directory under /tmp for an account that cannot enter ours. Raises `ServiceError`."""
    path = _short_name(run_dir, user)
    path.mkdir(mode=0o700, exist_ok=True)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid not in (os.geteuid(), user):
        raise ServiceError(f"{path} belongs to another user; remove it")
    os.chown(path, user, group)
    return path


def _short_name(directory: Path, user: int) -> Path:
    digest = hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"tidegate-{user}-{digest}"
