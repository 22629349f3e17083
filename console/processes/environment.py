"""The environment every process of the platform is started with, and the secrets it needs."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from console.embedded.directories import run_directory
from console.embedded.errors import ServiceError
from console.processes.options import UpOptions

SECRET_NAMES = ("TIDEGATE_SECRET_KEY", "TIDEGATE_KEY_PEPPER", "TIDEGATE_AUDIT_KEY")
_ADDED_LATER = ("TIDEGATE_AUDIT_KEY",)
"""Secrets that the file of an older installation lacks: they are created in it, once."""
_LONG_KNOWN = tuple(name for name in SECRET_NAMES if name not in _ADDED_LATER)


def stored_secrets(state_dir: Path) -> dict[str, str]:
    """Secrets of this installation, created once under the state directory (mode 0600).

    Losing the pepper makes every API key worthless, so the file is written in full before it gets its name.
    """
    path = state_dir / "secrets.json"
    if not path.exists():
        write_private(path, json.dumps({name: secrets.token_urlsafe(48) for name in SECRET_NAMES}))
    stored = _read(path)
    missing = [name for name in _ADDED_LATER if not stored.get(name)]
    if missing:
        stored |= {name: secrets.token_urlsafe(48) for name in missing}
        write_private(path, json.dumps(stored))
    return {name: str(stored[name]) for name in SECRET_NAMES}


def platform_environment(
    options: UpOptions, urls: Mapping[str, str], environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """What the caller's environment says, completed; secrets given there win over stored ones."""
    missing = [name for name in SECRET_NAMES if not environ.get(name)]
    created = stored_secrets(options.state_dir) if missing else {}
    pinned = {
        f"TIDEGATE_CPU_{name.upper()}": ",".join(map(str, cores)) for name, cores in options.cpu_cores.items()
    }
    return {
        **environ,
        **{name: created[name] for name in missing},
        **urls,
        **pinned,
        "DJANGO_SETTINGS_MODULE": "console.settings",
        "PYTHONUNBUFFERED": "1",
        "TIDEGATE_STATE_DIR": str(options.state_dir),
        "TIDEGATE_RUN_DIR": str(run_directory(options.state_dir)),
        "TIDEGATE_CONSOLE_HOST": options.console_host,
        "TIDEGATE_CONSOLE_PORT": str(options.console_port),
        "TIDEGATE_GATEWAY_HOST": options.gateway_host,
        "TIDEGATE_GATEWAY_PORT": str(options.gateway_port),
    }


def write_private(path: Path, text: str) -> None:
    """A file for its owner only, whole or not at all."""
    unfinished = path.with_suffix(".new")
    unfinished.unlink(missing_ok=True)
    with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    unfinished.rename(path)


def _read(path: Path) -> dict[str, object]:
    try:
        stored = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ServiceError(f"cannot read the secrets in {path}: {error}") from error
    if not isinstance(stored, dict) or not all(stored.get(name) for name in _LONG_KNOWN):
        raise ServiceError(f"{path} lacks one of {', '.join(_LONG_KNOWN)}; restore it from a backup")
    return stored
