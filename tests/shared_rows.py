"""Rows that the tests of a module start from are made once, in a transaction around all of them.

Each test then runs in a savepoint of that transaction and sees nothing of what the others did. A test that
needs real commits, or that names no such fixture, gets a database without them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.db import connection, transaction

NAMES = ("world", "team")
"""Fixtures that are made of shared rows, the richest first."""


@dataclass(slots=True)
class _Open:
    key: tuple[str, str]
    atomic: transaction.Atomic
    rows: Any
    blocker: Any


_open: _Open | None = None


def rows(request: pytest.FixtureRequest, build: Callable[[], Any]) -> Any:
    """What `build` returns, a copy for each test. Takes the place of a fixture's `db`."""
    key = _key(request.node)
    if _open is None and key is not None and not connection.in_atomic_block:
        _begin(request, key, build)
    request.getfixturevalue("db")
    return build() if _open is None else copy.deepcopy(_open.rows)


def _begin(request: pytest.FixtureRequest, key: tuple[str, str], build: Callable[[], Any]) -> None:
    global _open
    blocker = request.getfixturevalue("open_rows")
    with blocker.unblock():
        atomic = transaction.atomic()
        atomic.__enter__()
        _open = _Open(key, atomic, None, blocker)
        _open.rows = build()


def _end() -> None:
    global _open
    if _open is None:
        return
    ending, _open = _open, None
    with ending.blocker.unblock():
        transaction.set_rollback(True)
        ending.atomic.__exit__(None, None, None)


@pytest.fixture(scope="session")
def open_rows(django_db_setup: None, django_db_blocker: Any) -> Iterator[Any]:
    """Ends the last transaction before the database goes."""
    yield django_db_blocker
    _end()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[Any]) -> None:
    """pytest-django makes a database only when some test names it; behind `world` it comes too late to disturb."""
    for item in items:
        names = getattr(item, "fixturenames", [])
        if any(name in names for name in NAMES) and not {"db", "transactional_db"} & set(names):
            names.append("db")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if _open is not None and _key(item) != _open.key:
        _end()


def _key(item: Any) -> tuple[str, str] | None:
    """Module and fixture of the rows a test shares; None when it must not."""
    mark = item.get_closest_marker("django_db")
    is_transactional = "transactional_db" in item.fixturenames or (mark and mark.kwargs.get("transaction"))
    name = next((name for name in NAMES if name in item.fixturenames), None)
    return None if is_transactional or name is None else (item.path.as_posix(), name)
