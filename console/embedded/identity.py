"""As whom an embedded service runs: directly, or (PostgreSQL refuses root) enclosed when we are root."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from console.embedded import enclosed
from console.embedded.errors import ServiceError

_FALLBACK_ACCOUNTS = ("postgres", "nobody")


@dataclass(frozen=True, slots=True)
class Identity:
    """How to start a program so that it dies with us and runs as someone it accepts to be."""

    arguments: tuple[str, ...] = ()
    owner: tuple[int, int] | None = None
    """User and group that must own its directories; None when that is simply us."""

    def wrap(self, command: Sequence[str | Path], death_signal: signal.Signals) -> list[str]:
        """The command line to execute in this process's name; `death_signal` arrives when we die."""
        return [
            *(sys.executable, "-I", "-S", enclosed.__file__),
            *("--parent", str(os.getpid()), "--signal", str(int(death_signal)), *self.arguments, "--"),
            *(str(part) for part in command),
        ]


def ourselves() -> Identity:
    return Identity()


def unprivileged(program: Path, directory: Path) -> Identity:
    """Someone other than root who can run `program` and reach `directory`. Raises `ServiceError`."""
    if os.geteuid() != 0 and _has_account():
        return ourselves()
    for candidate in _candidates():
        if _can(candidate, [program, "--version"]) and _can(candidate, ["/bin/ls", "-d", directory]):
            return candidate
    raise ServiceError(
        "PostgreSQL does not run as root or as a user without an account, user namespaces are not allowed "
        "here, and no ordinary account "
        f"({', '.join(_FALLBACK_ACCOUNTS)}) can reach both {program} and {directory}. Run this as an ordinary "
        "user, choose a reachable --state-dir, or point DATABASE_URL at a running server."
    )


def _has_account() -> bool:
    """Containers may run under an id that no account has; initdb insists on a name."""
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return True


def _candidates() -> list[Identity]:
    found = [Identity(("--as-user",))]
    if os.geteuid() != 0:
        return found
    for name in _FALLBACK_ACCOUNTS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        found.append(Identity(("--account", name), (entry.pw_uid, entry.pw_gid)))
    return found


def _can(identity: Identity, command: Sequence[str | Path]) -> bool:
    wrapped = identity.wrap(command, signal.SIGKILL)
    return subprocess.run(wrapped, capture_output=True, check=False, timeout=30).returncode == 0
