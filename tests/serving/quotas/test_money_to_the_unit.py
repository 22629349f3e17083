"""What clients were told, what the ledger has, what metrics say and what budgets counted: one sum, also after kill -9."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families
from redis import Redis

from serving.contract import PriceEntry, QuotaEntry, UsageReport, UsageRow
from serving.gateway.usage import Usage
from serving.quotas.limits import store_name
from serving.seam.memory import MemorySeam
from serving.seam.outbox import ReportOutbox
from tests.serving.gateway.engines import HeldEngine
from tests.serving.gateway.harness import PATIENCE_S, echo_body, until
from tests.serving.quotas.test_several_gateways import Gateways, a_quota, gateways

pytestmark = pytest.mark.processes

PER_REQUEST_MICRO = 5000
PRICES = PriceEntry(
    id="prc_a", micro_per_device_hour=3_600_000_000, micro_per_thousand_requests=PER_REQUEST_MICRO * 1000
)
"""A microsecond costs one micro-unit: nothing is ever rounded."""


class Sums(NamedTuple):
    answered: int
    device_us: int
    cost_micro: int


async def answers(several: Gateways, count: int) -> Sums:
    """What the receipts of so many requests say, dealt out over the gateways."""
    async with httpx.AsyncClient(timeout=PATIENCE_S) as client:
        urls = [f"http://127.0.0.1:{port}/v2/models/echo/infer" for port in several.ports]
        asked = (
            client.post(urls[index % len(urls)], json=echo_body(), headers=several.harness.auth)
            for index in range(count)
        )
        got = await asyncio.gather(*asked)
    assert {answer.status_code for answer in got} == {200}
    device_us = sum(round(float(answer.headers["x-tidegate-device-ms"]) * 1000) for answer in got)
    cost_micro = sum(round(float(answer.headers["x-tidegate-cost"]) * 1e6) for answer in got)
    return Sums(count, device_us, cost_micro)


async def metrics(several: Gateways) -> Sums:
    found = [0.0, 0.0, 0.0]
    names = ("tidegate_requests_total", "tidegate_device_seconds_total", "tidegate_cost_units_total")
    async with httpx.AsyncClient(timeout=PATIENCE_S) as client:
        for port in several.ports:
            text = (await client.get(f"http://127.0.0.1:{port}/metrics")).text
            for family in text_string_to_metric_families(text):
                for sample in family.samples:
                    if sample.name in names and sample.labels.get("outcome", "ok") == "ok":
                        found[names.index(sample.name)] += sample.value
    return Sums(round(found[0]), round(found[1] * 1e6), round(found[2] * 1e6))


async def ledger(state_dir: Path) -> Sums:
    """What every gateway reported or left behind, as the next one to start there reports it."""
    rows: list[UsageRow] = []
    for directory in sorted(state_dir.glob("gateway*")):
        seam = MemorySeam()
        outbox = ReportOutbox(seam, directory.name, directory / "reports.jsonl")
        await outbox.start(Usage(outbox, directory).recover())
        await outbox.stop()
        rows += [row for body in seam.received() if isinstance(body, UsageReport) for row in body.rows]
    answered = sum(row.requests - row.failed - row.cancelled for row in rows)
    return Sums(answered, sum(row.device_us for row in rows), sum(row.cost_micro for row in rows))


def counted(quota: QuotaEntry) -> int:
    """By the account in Valkey."""
    raw: Any = Redis.from_url(os.environ["VALKEY_URL"]).get(store_name(quota.tenant_id, quota.id))
    return 0 if raw is None else msgspec.msgpack.decode(raw)["u"]


async def test_killed_gateways_change_no_sum(tmp_path: Path) -> None:
    engine = HeldEngine()
    engine.release.set()
    device = a_quota(resource="device_us", window="month", limit=10**12)
    money = a_quota(resource="cost_micro", window="month", limit=10**12)
    async with gateways(tmp_path, 2, device, engine, money, PRICES) as several:
        told = await answers(several, 60)
        assert told.cost_micro == told.device_us + 60 * PER_REQUEST_MICRO
        assert await metrics(several) == told
        await until(lambda: (counted(device), counted(money)) == told[1:])
        engine.release.clear()
        lost = asyncio.create_task(several.ask(4))
        await until(lambda: several.reserved() > 0)
        for process in several.processes:
            process.kill()
            await process.wait()
        engine.release.set()
        with pytest.raises(httpx.HTTPError):
            await lost
    assert await ledger(tmp_path) == told
