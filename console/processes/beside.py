"""Commands typed beside a running `manage.py up` or `demo` find its database, services and secrets by themselves."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from console.embedded.errors import ServiceError
from console.embedded.lock import is_locked
from console.processes.environment import SECRET_NAMES, stored_secrets, write_private
from console.processes.options import default_state_dir

LOCK = "up.lock"
FOR_SCRIPTS = "demo.json"
"""Written by the demo once it serves: addresses, sign-in and keys."""
SHARED = (
    "DATABASE_URL",
    "VALKEY_URL",
    "TIDEGATE_RUN_DIR",
    "TIDEGATE_CONSOLE_HOST",
    "TIDEGATE_CONSOLE_PORT",
    "TIDEGATE_GATEWAY_HOST",
    "TIDEGATE_GATEWAY_PORT",
)


def announce(
    state_dir: Path, environment: Mapping[str, str], environ: Mapping[str, str] = os.environ
) -> None:
    """Write down what this start chose by itself; what its caller has set, the caller knows."""
    chosen = {name: environment[name] for name in SHARED if name in environment and not environ.get(name)}
    write_private(_path(state_dir), json.dumps(chosen))


def withdraw(state_dir: Path) -> None:
    """Nothing runs here any more, or not yet. For who holds the lock; safe to call twice."""
    _path(state_dir).unlink(missing_ok=True)
    (state_dir / FOR_SCRIPTS).unlink(missing_ok=True)


def join(environ: MutableMapping[str, str] = os.environ) -> None:
    """Fill in what `environ` leaves open from the installation that runs on its state directory, if one does.

    A given `DATABASE_URL` means that the caller knows what to talk to: then nothing is touched.
    """
    state_dir = default_state_dir(environ)
    if environ.get("DATABASE_URL") or not is_locked(state_dir / LOCK):
        return
    try:
        found: dict[str, str] = json.loads(_path(state_dir).read_text())
        found |= stored_secrets(state_dir) if (state_dir / "secrets.json").exists() else {}
    except (OSError, ValueError, ServiceError):
        return  # still starting, or somebody else's: the system checks say what is missing
    for name in (*SHARED, *SECRET_NAMES):
        if name in found:
            environ.setdefault(name, found[name])


def _path(state_dir: Path) -> Path:
    return state_dir / "running.json"
