"""A real console in a thread, frames once a second, and a headless Chromium that watches."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
import uvicorn
from django.conf import settings
from django.test import Client
from redis import Redis

from console.asgi import application
from console.live.publish import LivePublisher
from serving.telemetry.frames import (
    FRAMES_CHANNEL,
    STAGES,
    LiveFrame,
    ReplicaGauge,
    Series,
    encode_frame,
    slots_of,
)
from serving.telemetry.histogram import Histogram
from tests.console.conftest import World, build_world

QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
    "--no-first-run",
)


@dataclass
class Console:
    """The console on a port of its own; it can be stopped and started again."""

    port: int = 0
    _server: uvicorn.Server | None = None
    _thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self.port = self.port or _free_port()
        config = uvicorn.Config(
            application,
            port=self.port,
            log_config=None,
            lifespan="off",
            ws="websockets-sansio",
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        _until(lambda: bool(self._server and self._server.started))

    def stop(self) -> None:
        assert self._server is not None and self._thread is not None
        self._server.should_exit = True
        self._thread.join(timeout=10)
        assert not self._thread.is_alive(), "the server did not stop"


@dataclass
class Traffic:
    """What a gateway and a worker would say of a busy tenant, and the controller's step that merges it."""

    world: World
    _stopped: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(timeout=10)

    def _run(self) -> None:
        publisher = LivePublisher.from_settings()
        publisher.start()
        client = Redis.from_url(settings.VALKEY_URL)
        sequence, epoch = 0, int(time.time() * 1000)
        while not self._stopped.wait(1.0):
            sequence += 1
            now = time.time()
            client.publish(FRAMES_CHANNEL, encode_frame(self._gateway(epoch, sequence, now)))
            client.publish(FRAMES_CHANNEL, encode_frame(self._worker(epoch, sequence, now)))
            publisher.step(now)
        publisher.close()
        client.close()

    def _gateway(self, epoch: int, sequence: int, now: float) -> LiveFrame:
        count = 20 + sequence % 7
        histograms = {stage: Histogram({450: count}, 7_400 * count) for stage in STAGES}
        histograms["batch_rows"] = Histogram({82: count}, 5 * count)
        series = Series(
            self.world.cast.tenant.pk, "minilm", self.world.version.pk, "embeddings", "interactive", 50_000, count, {},
            count, count, 9 * count, 900 * count, 3 * count, count // 2, {"full": count},
            slots_of(histograms.items()), 2,
        )  # fmt: skip
        return LiveFrame("gateway-browser", epoch, sequence, now, 1.0, (series,))

    def _worker(self, epoch: int, sequence: int, now: float) -> LiveFrame:
        gauge = ReplicaGauge(
            "rep_browser", "minilm", self.world.version.pk, epoch, 3, 8, 640_000, 20, 100, 900
        )
        return LiveFrame("worker-browser", epoch, sequence, now, 1.0, (), (gauge,))


@pytest.fixture(autouse=True)
def loop_of_playwright(monkeypatch: pytest.MonkeyPatch) -> None:
    """Playwright's own loop runs in this thread; Django must not take our database calls for async ones."""
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")


@pytest.fixture
def world(transactional_db: None, loop_of_playwright: None) -> World:
    return build_world()


@pytest.fixture
def console(world: World) -> Iterator[Console]:
    running = Console()
    running.start()
    yield running
    running.stop()


@pytest.fixture
def traffic(world: World) -> Iterator[Traffic]:
    running = Traffic(world)
    running.start()
    yield running
    running.stop()


def session_cookie(who: str, world: World, console: Console) -> dict[str, str]:
    client = Client()
    client.force_login(world.cast.users[who])
    value = client.cookies[settings.SESSION_COOKIE_NAME].value
    return {"name": settings.SESSION_COOKIE_NAME, "value": value, "url": console.url}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _until(condition: object) -> None:
    deadline = time.monotonic() + 20
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.02)
