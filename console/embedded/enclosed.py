"""Exec wrapper of an embedded service: dies with its parent, and is not root where root is refused.

Run as a script (`python -I -S enclosed.py --parent PID --signal N [--as-user | --account NAME] -- COMMAND`),
standard library only, because it stands between the launcher and the service for a few milliseconds.
The order matters: a change of credentials clears the parent-death signal, so the signal is asked for last.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import pwd
import sys

_CLONE_NEWUSER = 0x10000000
_PR_SET_PDEATHSIG = 1
_OVERFLOW_ID = 65534


def main() -> None:
    arguments = _parse()
    os.umask(0o077)
    if arguments.as_user:
        enter_user_namespace()
    elif arguments.account:
        become(arguments.account)
    _libc_call("prctl", _PR_SET_PDEATHSIG, arguments.signal, 0, 0, 0)
    if os.getppid() != arguments.parent:  # it died before the kernel knew that we want to follow
        sys.exit(1)
    os.execv(arguments.command[0], arguments.command)  # noqa: S606


def enter_user_namespace() -> None:
    """Map this process to an ordinary user id inside a namespace of its own: PostgreSQL refuses id 0.

    Files keep their real owner, so nothing in the data directory changes hands.
    """
    user, group = os.geteuid(), os.getegid()
    inner = _inner_user()
    _libc_call("unshare", _CLONE_NEWUSER)
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{inner} {user} 1")
    _write("/proc/self/gid_map", f"{inner} {group} 1")


def _inner_user() -> int:
    """An ordinary user id with an account: initdb looks its name up. Not the id of unmapped owners."""
    ids = [entry.pw_uid for entry in pwd.getpwall() if entry.pw_uid not in (0, _OVERFLOW_ID)]
    return min(ids, default=_OVERFLOW_ID)


def become(account: str) -> None:
    """Drop root for good in favour of an existing account."""
    entry = pwd.getpwnam(account)
    os.setgroups([])
    os.setgid(entry.pw_gid)
    os.setuid(entry.pw_uid)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--signal", type=int, required=True)
    parser.add_argument("--as-user", action="store_true")
    parser.add_argument("--account")
    parser.add_argument("command", nargs="+")
    return parser.parse_args()


def _write(path: str, text: str) -> None:
    with open(path, "w") as stream:
        stream.write(text)


def _libc_call(name: str, *values: int) -> None:
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*values) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")


if __name__ == "__main__":
    main()
