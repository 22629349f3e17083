"""Limits are the same through one gateway process and through four, and a killed one leaves nothing reserved."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import secrets
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from redis import Redis

from serving.contract import QuotaEntry
from serving.quotas.keeper import LEASE_MS
from serving.quotas.limits import store_name
from serving.quotas.valkey import WHOLE
from serving.worker.engines.echo import EchoEngine
from serving.worker.testing import EchoWorker
from tests.serving.gateway.engines import HeldEngine
from tests.serving.gateway.harness import PATIENCE_S, Harness, echo_body, gateway, until
from tests.serving.gateway.processes import gateway_process, write_configuration
from tests.serving.gateway.test_starting_and_stopping import free_port

pytestmark = pytest.mark.processes


@dataclasses.dataclass
class Gateways:
    harness: Harness
    ports: list[str]
    processes: list[Process]
    quota: QuotaEntry

    async def ask(self, count: int) -> list[int]:
        """So many requests at once, dealt out over the gateways."""
        limits = httpx.Limits(max_connections=count)
        async with httpx.AsyncClient(timeout=PATIENCE_S, limits=limits) as client:
            asked = (self._one(client, self.ports[index % len(self.ports)]) for index in range(count))
            return sorted(await asyncio.gather(*asked))

    async def _one(self, client: httpx.AsyncClient, port: str) -> int:
        url = f"http://127.0.0.1:{port}/v2/models/echo/infer"
        return (await client.post(url, json=echo_body(), headers=self.harness.auth)).status_code


@contextlib.asynccontextmanager
async def gateways(
    state_dir: Path, count: int, quota: QuotaEntry, engine: EchoEngine | None = None
) -> AsyncIterator[Gateways]:
    valkey_url = os.environ["VALKEY_URL"]
    Redis.from_url(valkey_url).set(WHOLE, "1")
    async with gateway(is_started=False) as harness, contextlib.AsyncExitStack() as stack:
        harness.publish_model()
        harness.publish_replicas(harness.address())
        harness.seam.put(quota.id, quota)
        await stack.enter_async_context(
            EchoWorker(harness.address(), engine or EchoEngine(), replica_id="rep_0")
        )
        await write_configuration(harness, state_dir, count)
        ports = [free_port() for _ in range(count)]
        processes = [
            await stack.enter_async_context(
                gateway_process(state_dir, port, index, count, VALKEY_URL=valkey_url)
            )
            for index, port in enumerate(ports)
        ]
        for port in ports:
            await _until_ready(harness, port)
        yield Gateways(harness, ports, processes, quota)


def a_quota(**fields: Any) -> QuotaEntry:
    given = {"id": f"quo_{secrets.token_hex(6)}", "tenant_id": "tnt_a", "resource": "requests"} | fields
    return QuotaEntry(**given)


@pytest.mark.parametrize("count", [1, 4])
async def test_fifty_at_once_against_a_budget_for_ten_are_ten_answers(tmp_path: Path, count: int) -> None:
    quota = a_quota(window="day", limit=10)
    async with gateways(tmp_path, count, quota) as several:
        assert await several.ask(50) == [200] * 10 + [429] * 40
        assert await several.ask(10) == [429] * 10


@pytest.mark.parametrize("count", [1, 4])
async def test_a_rate_gives_its_burst_and_no_more(tmp_path: Path, count: int) -> None:
    """One a minute: nothing comes back while the test looks."""
    quota = a_quota(window="minute", limit=1, burst=25)
    async with gateways(tmp_path, count, quota) as several:
        answers = [*await several.ask(12), *await several.ask(12), *await several.ask(12)]
        assert sorted(answers) == [200] * 25 + [429] * 11


async def test_what_is_inside_through_four_is_limited_together(tmp_path: Path) -> None:
    engine = HeldEngine()
    async with gateways(tmp_path, 4, a_quota(resource="concurrency", limit=7), engine) as several:
        asked = asyncio.create_task(several.ask(20))
        await until(lambda: _reserved(several) == 7)
        engine.release.set()
        answers = await asked
        assert answers.count(200) >= 7 and set(answers) == {200, 429}
        await until(lambda: _reserved(several) == 0)  # the others hear of it at the next tick
        assert await several.ask(7) == [200] * 7


async def test_a_killed_gateway_leaves_nothing_reserved(tmp_path: Path) -> None:
    engine = HeldEngine()
    quota = a_quota(window="day", limit=4)
    async with gateways(tmp_path, 2, quota, engine) as several:
        doomed = dataclasses.replace(several, ports=several.ports[:1])
        asked = asyncio.create_task(doomed.ask(4))
        await until(lambda: _reserved(several) == 4)
        several.processes[0].kill()
        with pytest.raises(httpx.HTTPError):
            await asked
        killed_at = time.monotonic()
        living = dataclasses.replace(several, ports=several.ports[1:])
        assert await living.ask(1) == [429]
        engine.release.set()
        await until(lambda: _reserved(several) == 0)
        assert time.monotonic() - killed_at <= LEASE_MS / 1000 + 1
        assert await living.ask(6) == [200] * 4 + [429] * 2


def _reserved(several: Gateways) -> int:
    """As Valkey has it, without what has expired."""
    client = Redis.from_url(os.environ["VALKEY_URL"])
    raw: Any = client.get(store_name("tnt_a", several.quota.id))
    if raw is None:
        return 0
    held = msgspec.msgpack.decode(raw)["p"]
    now_ms = time.time() * 1000
    return sum(h[0] - h[1] for h in held.values() if h[3] > now_ms) if isinstance(held, dict) else 0


async def _until_ready(harness: Harness, port: str) -> None:
    async with asyncio.timeout(PATIENCE_S), httpx.AsyncClient(timeout=PATIENCE_S) as client:
        url = f"http://127.0.0.1:{port}/v2/models/echo/ready"
        while True:
            with contextlib.suppress(httpx.HTTPError):
                if (await client.get(url, headers=harness.auth)).status_code == 200:
                    return
            await asyncio.sleep(0.02)
