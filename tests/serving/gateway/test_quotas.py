"""Quotas at the gateway's door: what passes, what is refused and with which words, what headers say."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import secrets
from collections.abc import AsyncIterator
from typing import Any

from redis import Redis

from serving.contract import QuotaEntry
from serving.quotas.valkey import WHOLE
from serving.worker.testing import EchoWorker
from tests.serving.gateway.harness import Harness, gateway, until


@contextlib.asynccontextmanager
async def serving(**settings: Any) -> AsyncIterator[Harness]:
    """A gateway before one echo worker; its tenant's name is its own, and so are its accounts."""
    Redis.from_url(os.environ["VALKEY_URL"]).set(WHOLE, "1")
    async with gateway(is_started=False) as harness:
        harness.settings = dataclasses.replace(
            harness.settings, **({"valkey_url": os.environ["VALKEY_URL"]} | settings)
        )
        harness.publish_model()
        harness.publish_replicas(harness.address())
        await harness.start()
        try:
            async with EchoWorker(harness.address(), replica_id="rep_0"):
                await harness.until_ready()
                yield harness
        finally:
            await harness.stop()


async def limit(harness: Harness, *quotas: dict[str, Any]) -> None:
    """Publish quotas of the harness's tenant and wait until the gateway knows them."""
    ids = [f"quo_{secrets.token_hex(6)}" for _ in quotas]
    for quota_id, fields in zip(ids, quotas, strict=True):
        harness.seam.put(quota_id, QuotaEntry(**({"id": quota_id, "tenant_id": "tnt_a"} | fields)))
    await until(lambda: all(quota_id in harness.gateway._snapshot.quotas for quota_id in ids))


REQUESTS_A_DAY = {"resource": "requests", "window": "day"}


async def test_a_budget_gives_out_its_last_unit_and_no_more() -> None:
    async with serving() as harness:
        await limit(harness, REQUESTS_A_DAY | {"limit": 3})
        answers = [await harness.infer() for _ in range(5)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429, 429]


async def test_fifty_at_once_against_a_budget_of_ten_give_ten_answers() -> None:
    async with serving() as harness:
        await limit(harness, REQUESTS_A_DAY | {"limit": 10})
        answers = await asyncio.gather(*(harness.infer() for _ in range(50)))
        assert sorted(answer.status_code for answer in answers) == [200] * 10 + [429] * 40
