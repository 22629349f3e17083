"""The client speaks with the real console, in the test's own process and transaction."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from django.core.handlers.wsgi import WSGIHandler
from django.core.signals import request_finished, request_started
from django.db import close_old_connections

from tests.console.conftest import world

__all__ = ["console", "world"]


@pytest.fixture
def console() -> Iterator[httpx.WSGITransport]:
    """Requests share the test's connection and its transaction, as those of Django's test client do."""
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield httpx.WSGITransport(app=WSGIHandler())
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)
