from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
import uvloop

from serving.worker.engines.echo import EchoEngine
from serving.worker.testing import EchoWorker
from tests.serving.gateway import harness as harnesses
from tests.serving.gateway.engines import FakeEncoder
from tests.serving.gateway.harness import Harness, gateway
from tests.serving.gateway.repetition import Counting, CountingEngine, serving
from tests.serving.gateway.streams import TEXT, TEXT_OUT

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


@pytest.fixture
async def harness(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Harness]:
    """Usage stays where tests can read it, and a busy machine makes nobody a slow reader."""
    monkeypatch.setattr("serving.gateway.gateway.USAGE_FLUSH_S", 3600.0)
    monkeypatch.setattr("serving.worker.streams.CONTENDED_STALL_S", 60.0)
    async with gateway() as harness:
        harness.publish_model()
        harness.publish_replicas(harness.address())
        yield harness


@pytest.fixture
async def text() -> AsyncIterator[Harness]:
    """A gateway in front of a text model that streams word by word."""
    async with gateway() as harness:
        harness.publish_model("poet", version_id="mv_poet", inputs=TEXT, outputs=TEXT_OUT)
        harness.publish_replicas(harness.address(), model="poet", version_id="mv_poet")
        engine = EchoEngine(chunks=1000, is_text=True)
        async with EchoWorker(harness.address(), engine, replica_id="rep_0", version_id="mv_poet"):
            await harness.until_ready("mv_poet")
            yield harness


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The event loop the gateway runs on."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def counting() -> AsyncIterator[Counting]:
    """A gateway that remembers answers, and the engine that counts what it ran."""
    engine = CountingEngine()
    async with serving(engine) as harness:
        yield harness, engine
