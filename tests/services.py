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

_DEFAULTS = {
    "TIDEGATE_SECRET_KEY": "tests-only-secret-key-of-no-worth-at-all-0123456789",
    "TIDEGATE_KEY_PEPPER": "tests-only-pepper-of-no-worth",
    "OMP_NUM_THREADS": "1",
}


def provide() -> None:
    """Complete `os.environ`; children of the tests inherit it. Idempotent."""
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
    if not os.environ.get("TIDEGATE_STATE_DIR"):
        os.environ["TIDEGATE_STATE_DIR"] = str(_temporary_directory() / "state")
    if not (os.environ.get("DATABASE_URL") and os.environ.get("VALKEY_URL")):
        services = EmbeddedServices(_temporary_directory() / "services", durable=False)
        services.start()
        atexit.register(services.stop)
        os.environ.update(services.urls())


def _temporary_directory() -> Path:
    path = Path(tempfile.mkdtemp(prefix="tidegate-tests-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path
