"""A worker that echoes, and a gateway's end of a link to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from serving.worker.engines.echo import EchoEngine
from tests.serving.worker.links import GatewayLink, linked


@pytest.fixture
def socket_path(tmp_path: Path) -> str:
    return str(tmp_path / "w.sock")


@pytest.fixture
async def link(socket_path: str) -> AsyncIterator[GatewayLink]:
    async with linked(socket_path, EchoEngine(chunks=1000)) as link:
        yield link
