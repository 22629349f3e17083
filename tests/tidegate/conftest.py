"""The client speaks with the real console, in the test's own process and transaction."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from django.core.cache import cache
from django.core.handlers.wsgi import WSGIHandler
from django.core.signals import request_finished, request_started
from django.db import close_old_connections

from tests.console.conftest import World, world
from tests.tidegate.terminal import Terminal
from tidegate import Tidegate
from tidegate.cli import asking, signin

__all__ = ["console", "world"]
PASSWORD = "correct horse battery"


@pytest.fixture
def console() -> Iterator[httpx.WSGITransport]:
    """Requests share the test's connection and its transaction, as those of Django's test client do."""
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield httpx.WSGITransport(app=WSGIHandler())
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, console: httpx.WSGITransport) -> Terminal:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(asking, "Tidegate", functools.partial(Tidegate, http=console))
    monkeypatch.setattr(signin, "sign_in", functools.partial(signin.sign_in, http=console))
    cache.clear()
    return Terminal()


@pytest.fixture
def operator(world: World, terminal: Terminal) -> Terminal:
    user = world.cast.users["operator"]
    user.set_password(PASSWORD)
    user.save()
    terminal.run("login", "--user", "operator", "--password", PASSWORD)
    return terminal
