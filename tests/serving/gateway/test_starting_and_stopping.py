"""Starting without anybody else, draining, and the real process."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from serving.gateway import frames
from serving.worker.testing import EchoWorker
from tests.serving.gateway.engines import HeldEngine
from tests.serving.gateway.harness import Harness, gateway, until


async def test_it_is_not_ready_before_it_knows_anything() -> None:
    async with gateway(is_started=False) as harness:
        harness.seam.is_down = True
        await harness.start()
        assert (await harness.client.get("/livez")).status_code == 200
        assert (await harness.client.get("/readyz")).status_code == 503
        assert (await harness.infer()).status_code == 401
        harness.seam.is_down = False
        await until(lambda: harness.gateway.app.is_ready)
        assert (await harness.client.get("/readyz")).status_code == 200
        await harness.stop()


async def test_it_starts_and_serves_from_the_last_good_configuration() -> None:
    async with gateway(is_started=False) as harness:
        harness.publish_model()
        harness.publish_replicas(harness.address())
        async with EchoWorker(harness.address(), replica_id="rep_0"):
            await harness.start()
            await harness.until_ready()
            await harness.stop()
            harness.seam.is_down = True
            await harness.start()
            await harness.until_ready()
            assert (await harness.client.get("/readyz")).status_code == 200
            assert (await harness.infer()).status_code == 200
            await harness.stop()
        mode = (harness.directory / "last-good.json").stat().st_mode
        assert mode & 0o077 == 0


async def test_it_goes_on_while_the_seam_is_away(echo: Harness) -> None:
    echo.seam.is_down = True
    for _ in range(20):
        assert (await echo.infer()).status_code == 200
        await asyncio.sleep(0.005)
    echo.seam.is_down = False
    token = echo.publish_key()
    await until(lambda: f"key_{token.split('_')[1]}" in echo.gateway._snapshot.keys)


async def test_it_serves_without_valkey(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "FRAME_S", 0.01)
    async with gateway(is_started=False) as harness:
        harness.settings = replace(harness.settings, valkey_url="redis://127.0.0.1:1/0")
        harness.publish_model()
        harness.publish_replicas(harness.address())
        async with EchoWorker(harness.address(), replica_id="rep_0"):
            await harness.start()
            await harness.until_ready()
            await until(lambda: harness.gateway._frames._silent_until > 0)
            assert (await harness.infer()).status_code == 200
            await harness.stop()


async def test_a_drain_finishes_what_is_in_flight_and_takes_nothing_new() -> None:
    async with gateway(is_started=False) as harness:
        harness.publish_model()
        harness.publish_replicas(harness.address())
        await harness.start()
        engine = HeldEngine()
        async with EchoWorker(harness.address(), engine, replica_id="rep_0"):
            await harness.until_ready()
            request = asyncio.create_task(harness.infer())
            await until(engine.started.is_set)
            harness.gateway.drain()
            refused = await harness.infer()
            assert (refused.status_code, refused.json()["code"]) == (503, "draining")
            assert (await harness.client.get("/readyz")).status_code == 503
            harness.server.should_exit = True
            await until(lambda: not harness.server.servers[0].is_serving())
            with pytest.raises(httpx.ConnectError):
                async with httpx.AsyncClient() as other:
                    await other.get(f"{harness.url}/livez")
            engine.release.set()
            assert (await request).status_code == 200
            await harness.stop()


# ---------------------------------------------------------------- the real process


def environment(directory: Path, **variables: str) -> dict[str, str]:
    """The database it is told of does not exist."""
    names = {
        "DATABASE_URL": f"postgresql://nobody@localhost/none?host={directory}",
        "TIDEGATE_KEY_PEPPER": "test-pepper-test-pepper",
        "TIDEGATE_STATE_DIR": str(directory),
        "TIDEGATE_GATEWAY_PORT": "0",
    }
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return kept | names | variables


def free_port() -> str:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return str(sock.getsockname()[1])


@pytest.mark.processes
def test_the_process_lives_without_postgresql_and_stops_with_zero(tmp_path: Path) -> None:
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "serving.gateway"],
        env=environment(tmp_path, TIDEGATE_GATEWAY_PORT=port, TIDEGATE_GATEWAY_INDEX="0"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        give_up = time.monotonic() + 60
        while True:
            try:
                assert httpx.get(f"http://127.0.0.1:{port}/livez", timeout=1).status_code == 200
                break
            except httpx.TransportError:
                assert process.poll() is None and time.monotonic() < give_up
                time.sleep(0.05)
        assert httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 503
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()
    assert (tmp_path / "gateway").stat().st_mode & 0o077 == 0


@pytest.mark.processes
@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"TIDEGATE_KEY_PEPPER": ""}, "TIDEGATE_KEY_PEPPER"),
        ({"DATABASE_URL": ""}, "DATABASE_URL"),
        ({"TIDEGATE_GATEWAY_INDEX": "2"}, "TIDEGATE_GATEWAY_INDEX"),
        ({"TIDEGATE_GATEWAY_PORT": "busy"}, "TIDEGATE_GATEWAY_PORT"),
    ],
)
def test_a_setting_that_cannot_work_is_named(tmp_path: Path, variables: dict[str, str], words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "serving.gateway"],
        env=environment(tmp_path) | variables,
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert done.returncode == 2
    assert words in done.stdout


@pytest.mark.processes
def test_a_busy_port_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            [sys.executable, "-m", "serving.gateway"],
            env=environment(tmp_path, TIDEGATE_GATEWAY_PORT=port),
            capture_output=True,
            text=True,
            timeout=20,
        )
    assert done.returncode == 2
    assert port in done.stdout and "TIDEGATE_GATEWAY_PORT" in done.stdout
