"""Fixtures shared by every test: where the session's services are, and a browser."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# What a machine has besides to do says nothing about a property. Between two edits fewer examples do.
settings.register_profile(
    "tidegate",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=int(os.environ.get("TIDEGATE_TEST_EXAMPLES", "100")),
)
settings.load_profile("tidegate")

pytest_plugins = ["tests.shared_rows"]

_MODULE_MARK = re.compile(r"^pytestmark = \[?pytest\.mark\.(\w+)", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A module whose tests `-m "not torch and …"` leaves out, all of them, is not imported either."""
    expression = config.option.markexpr
    if "not " not in expression or " or " in expression or not collection_path.match("test_*.py"):
        return None
    mark = _MODULE_MARK.search(collection_path.read_text())
    return True if mark and f"not {mark[1]}" in expression else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whoever asks for the database, in whatever way, carries its mark."""
    for item in items:
        asks = {"db", "transactional_db"} & set(getattr(item, "fixturenames", ()))
        if asks or item.get_closest_marker("django_db"):
            item.add_marker("database")


@pytest.fixture(scope="session")
def database_url() -> str:
    """The session's PostgreSQL, as children of a test would be given it."""
    return os.environ["DATABASE_URL"]


@pytest.fixture(scope="session")
def valkey_url() -> str:
    return os.environ["VALKEY_URL"]


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    """A private state directory of this test alone."""
    path = tmp_path / "state"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: Any) -> None:
    """Tests with real commits empty every table afterwards; only the audit trail's own tests mind."""
    from django.db import connection

    with django_db_blocker.unblock(), connection.as_owner(), connection.cursor() as cursor:
        for table in ("auditevent", "auditlink", "auditcheckpoint", "auditarchive"):
            name = f"tenants_{table}"
            cursor.execute(f"ALTER TABLE {name} DISABLE TRIGGER {name}_no_truncate")


@pytest.fixture(scope="session")
def chromium_path() -> str:
    """Chromium from PATH, else from the distribution's package where root allows it.

    Elsewhere the browser tests are skipped aloud; in CI a missing browser is an error.
    """
    found = _chromium() or (_install_chromium() if os.geteuid() == 0 else None)
    if found:
        return found
    reason = "no Chromium: install the distribution's chromium package to run the browser tests"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def _chromium() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next(filter(None, map(shutil.which, names)), None)


def _install_chromium() -> str | None:
    if not shutil.which("apt-get"):
        return None
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ["apt-get", "update"],
        ["apt-get", "install", "-y", "--no-install-recommends", "chromium"],
    ):
        if subprocess.run(command, env=environment, capture_output=True, check=False).returncode != 0:
            return None
    return _chromium()
