from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
import uvloop

from serving.worker.testing import EchoWorker
from tests.serving.gateway import harness as harnesses
from tests.serving.gateway.engines import FakeEncoder
from tests.serving.gateway.harness import Harness, gateway

BOTH_WAYS = ("hot", "asgi")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every test that speaks to a gateway runs twice: over hot routes, and over plain ASGI alone."""
    if inspect.iscoroutinefunction(metafunc.function) and "way" in metafunc.fixturenames:
        metafunc.parametrize("way", BOTH_WAYS, indirect=True)


@pytest.fixture(autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The way a test's requests come in."""
    chosen: str = getattr(request, "param", "hot")
    monkeypatch.setattr(harnesses, "has_hot_routes", chosen == "hot")
    return chosen


@pytest.fixture
async def echo() -> AsyncIterator[Harness]:
    """A gateway that serves the model `echo` from one real worker loop."""
    async with gateway() as harness:
        harness.publish_model()
        harness.publish_replicas(harness.address())
        async with EchoWorker(harness.address(), replica_id="rep_0"):
            await harness.until_ready()
            yield harness


@pytest.fixture
async def encoder() -> AsyncIterator[Harness]:
    """A gateway that serves the text model `mini` from a fake encoder behind the real worker loop."""
    async with gateway() as harness:
        harness.publish_encoder()
        async with EchoWorker(harness.address(), FakeEncoder(), replica_id="rep_0", version_id="mv_mini"):
            await harness.until_ready("mv_mini")
            yield harness


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The event loop the gateway runs on."""
    return {"uvloop": uvloop.new_event_loop}
