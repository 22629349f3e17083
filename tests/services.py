"""Each test session's own throw-away PostgreSQL and Valkey, unless the environment brings some.

Several sessions run side by side: everything lives in one temporary directory per session. The services
die with the session, even when it is killed; the directory goes at a normal end.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

from console.embedded.services import EmbeddedServices

_OWNER = "TIDEGATE_TESTS_OWNER"
"""Whose services the environment names: several test processes run side by side and must share none."""

_DEFAULTS = {
    "TIDEGATE_SECRET_KEY": "tests-only-secret-key-of-no-worth-at-all-0123456789",
    "TIDEGATE_KEY_PEPPER": "tests-only-pepper-of-no-worth",
    "TIDEGATE_AUDIT_KEY": "tests-only-audit-key-of-no-worth",
    "OMP_NUM_THREADS": "1",
}


def provide() -> None:
    """Complete `os.environ`; children of the tests inherit it. Idempotent."""
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
    _leave_to_their_owner()
    if not os.environ.get("TIDEGATE_STATE_DIR"):
        os.environ["TIDEGATE_STATE_DIR"] = str(_temporary_directory() / "state")
    if not (os.environ.get("DATABASE_URL") and os.environ.get("VALKEY_URL")):
        services = EmbeddedServices(_temporary_directory() / "services", durable=False)
        services.start()
        atexit.register(services.stop)
        os.environ.update(services.urls())


def _leave_to_their_owner() -> None:
    """A worker of `pytest -n` inherits what the process that started it provided for itself."""
    me = os.environ.get("PYTEST_XDIST_WORKER", "main")
    if os.environ.setdefault(_OWNER, me) != me:
        os.environ[_OWNER] = me
        for name in ("TIDEGATE_STATE_DIR", "DATABASE_URL", "VALKEY_URL"):
            os.environ.pop(name, None)


def _temporary_directory() -> Path:
    path = Path(tempfile.mkdtemp(prefix="tidegate-tests-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path
