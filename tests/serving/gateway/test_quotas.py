"""Quotas at the gateway's door: what passes, what is refused and with which words, what headers say."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import secrets
import time
from collections.abc import AsyncIterator
from typing import Any
from zoneinfo import ZoneInfo

import httpx
import msgspec
import pytest
from redis import Redis

from serving.contract import QuotaEntry
from serving.quotas import windows
from serving.quotas.limits import store_name
from serving.quotas.valkey import RAISE, WHOLE, encode
from serving.worker.engines.echo import EchoEngine
from serving.worker.testing import EchoWorker
from tests.serving.gateway.engines import HeldEngine
from tests.serving.gateway.harness import Harness, echo_body, gateway, until


@contextlib.asynccontextmanager
async def serving(engine: EchoEngine | None = None, **settings: Any) -> AsyncIterator[Harness]:
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
            async with EchoWorker(harness.address(), engine or EchoEngine(), replica_id="rep_0"):
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


# ---------------------------------------------------------------- words and numbers


async def test_a_refusal_names_the_limit_and_how_it_stands() -> None:
    async with serving() as harness:
        await limit(harness, REQUESTS_A_DAY | {"limit": 1})
        await harness.infer()
        refused = await harness.infer()
    body = refused.json()
    assert body["code"] == "insufficient_quota"
    numbers = body["numbers"]
    assert (numbers["quota"], numbers["used"], numbers["reserved"], numbers["limit"]) == (
        "requests-per-day",
        1,
        0,
        1,
    )
    assert numbers["needed"] == 1
    assert 0 < numbers["reset_s"] <= 25 * 3600
    assert int(refused.headers["retry-after"]) == numbers["reset_s"]
    assert "reset_s" not in body["error"] and "requests-per-day" in body["error"]


async def test_openais_clients_are_told_not_to_try_again(encoder: Harness) -> None:
    harness = encoder
    await limit(harness, {"resource": "tokens", "window": "month", "limit": 1})
    body = {"model": "mini", "input": "w1 w2"}
    harness.gateway._quotas.keeper._fails_open = True  # without Valkey, by this gateway's part alone
    refused = await harness.client.post("/v1/embeddings", json=body, headers=harness.auth)
    error = refused.json()["error"]
    assert (refused.status_code, error["type"], error["code"]) == (
        429,
        "insufficient_quota",
        "insufficient_quota",
    )
    assert refused.headers["x-should-retry"] == "false"


async def test_the_longest_lasting_of_several_refusals_is_named() -> None:
    async with serving() as harness:
        month = {"resource": "requests", "window": "month", "limit": 1}
        await limit(harness, REQUESTS_A_DAY | {"limit": 1}, month)
        await harness.infer()
        assert (await harness.infer()).json()["numbers"]["quota"] == "requests-per-month"


async def test_headers_fall_with_every_answer_by_its_real_cost() -> None:
    async with serving() as harness:
        tokens = {"resource": "tokens", "window": "day", "limit": 100}
        await limit(harness, REQUESTS_A_DAY | {"limit": 50}, tokens)
        found = [(await harness.infer(echo_body([1.0] * rows))).headers for rows in (1, 2, 3)]
    assert [int(headers["x-ratelimit-remaining-requests"]) for headers in found] == [49, 48, 47]
    assert {headers["x-ratelimit-limit-requests"] for headers in found} == {"50"}
    left = [int(headers["x-ratelimit-remaining-tokens"]) for headers in found]
    assert left == [99, 98, 97]  # an echo counts a token per row, and each has one
    policies = found[0]["ratelimit-policy"].split(", ")
    assert policies == ['"requests-per-day";q=50;w=86400', '"tokens-per-day";q=100;w=86400;qu="tokens"']
    assert found[2]["ratelimit"].startswith('"requests-per-day";r=47;t=')


async def test_device_time_and_money_are_charged_as_the_receipt_says() -> None:
    async with serving() as harness:
        device = {"resource": "device_us", "window": "day", "limit": 10**9}
        money = {"resource": "cost_micro", "window": "month", "limit": 10**9}
        await limit(harness, device, money)
        answers = [await harness.infer() for _ in range(4)]
        spent_ms = sum(float(answer.headers["x-tidegate-device-ms"]) for answer in answers)
        cost = sum(float(answer.headers["x-tidegate-cost"]) for answer in answers)
        device_ms, micro = (int(part.split("r=")[1].split(";")[0]) for part in _limits(answers[-1]))
    assert 10**6 - device_ms == pytest.approx(spent_ms, abs=1.0)
    assert 10**9 - micro == pytest.approx(cost * 1e6, abs=1.0)


def _limits(answer: Any) -> list[str]:
    parts = {part.split(";")[0].strip('" '): part for part in answer.headers["ratelimit"].split(",")}
    return [parts["device-ms-per-day"], parts["cost-per-month"]]


async def test_a_tenant_without_quotas_hears_of_none(echo: Harness) -> None:
    headers = (await echo.infer()).headers
    assert not [name for name in headers if name.startswith(("ratelimit", "x-ratelimit"))]


# ---------------------------------------------------------------- what counts


async def test_a_request_that_was_refused_or_failed_costs_no_budget() -> None:
    async with serving() as harness:
        await limit(harness, REQUESTS_A_DAY | {"limit": 2})
        wrong = await harness.infer(
            {"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1]}]}
        )
        assert wrong.status_code == 400
        assert [(await harness.infer()).status_code for _ in range(3)] == [200, 200, 429]


async def test_a_limit_of_one_key_leaves_the_others_alone() -> None:
    async with serving() as harness:
        key_id = next(iter(harness.gateway._snapshot.keys))
        await limit(harness, REQUESTS_A_DAY | {"limit": 1, "key_id": key_id})
        assert [(await harness.infer()).status_code for _ in range(2)] == [200, 429]
        harness.token = harness.publish_key()
        await until(lambda: len(harness.gateway._snapshot.keys) == 2)
        assert (await harness.infer()).status_code == 200


async def test_a_limit_of_one_model_leaves_the_others_alone() -> None:
    async with serving() as harness:
        await limit(harness, REQUESTS_A_DAY | {"limit": 1, "model": "another"})
        assert [(await harness.infer()).status_code for _ in range(2)] == [200, 200]


async def test_counting_alone_refuses_nothing_and_is_shown() -> None:
    async with serving() as harness:
        await limit(harness, REQUESTS_A_DAY | {"limit": 1, "observe_only": True})
        answers = [await harness.infer() for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200] * 3
        assert answers[-1].headers["x-ratelimit-remaining-requests"] == "0"


async def test_a_rate_lets_its_burst_pass_and_says_when_there_is_more() -> None:
    async with serving() as harness:
        await limit(harness, {"resource": "requests", "window": "minute", "limit": 1, "burst": 3})
        answers = [await harness.infer() for _ in range(4)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
        refused = answers[-1]
        assert refused.json()["code"] == "rate_limited"
        assert 50 <= int(refused.headers["retry-after"]) <= 60


async def test_a_guarantee_holds_while_others_have_all_that_is_shared() -> None:
    engine = HeldEngine()
    async with serving(engine=engine) as harness:
        known = harness.gateway._snapshot.models
        model_id = f"mdl_{secrets.token_hex(6)}"
        harness.seam.put("echo", msgspec.structs.replace(known["echo"], id=model_id, pool_concurrency=2))
        own = {"resource": "concurrency", "limit": 9, "model": "echo", "guaranteed": 1}
        await limit(harness, own)
        await until(lambda: known["echo"].pool_concurrency == 2)
        harness.publish_tenant("tnt_b")
        other = {"authorization": f"Bearer {harness.publish_key('tnt_b')}"}
        await until(lambda: len(harness.gateway._snapshot.keys) == 2)
        borrowed = [asyncio.ensure_future(harness.infer(**other)) for _ in range(2)]
        await until(lambda: harness.gateway.inference.dispatcher.in_flight == 2)
        refused = await harness.infer(**other)
        assert (refused.status_code, refused.json()["code"]) == (429, "concurrency_exceeded")
        assert refused.json()["numbers"]["quota"] == "shared-model-concurrency"
        mine = asyncio.ensure_future(harness.infer())
        await until(lambda: harness.gateway.inference.dispatcher.in_flight == 3)
        assert (await harness.infer()).status_code == 429, "beyond the guarantee it borrows as others do"
        engine.release.set()
        answers = await asyncio.gather(*borrowed, mine)
        assert [answer.status_code for answer in answers] == [200] * 3


async def test_a_shared_rate_is_no_tenants_business_in_headers() -> None:
    async with serving() as harness:
        known = harness.gateway._snapshot.models
        model_id = f"mdl_{secrets.token_hex(6)}"
        harness.seam.put("echo", msgspec.structs.replace(known["echo"], id=model_id, pool_requests_per_s=1))
        await until(lambda: known["echo"].pool_requests_per_s == 1)
        answers = [await harness.infer() for _ in range(20)]
        assert answers[0].status_code == 200 and "ratelimit" not in answers[0].headers
        refused = next(answer for answer in answers if answer.status_code == 429)
        assert refused.json()["numbers"]["quota"] == "shared-model-requests-per-second"


async def test_a_raised_limit_lets_more_pass_within_a_second() -> None:
    async with serving() as harness:
        quota = QuotaEntry(id=f"quo_{secrets.token_hex(6)}", tenant_id="tnt_a", limit=1, **REQUESTS_A_DAY)
        harness.seam.put(quota.id, quota)
        await until(lambda: quota.id in harness.gateway._snapshot.quotas)
        assert [(await harness.infer()).status_code for _ in range(2)] == [200, 429]
        raised = QuotaEntry(id=quota.id, tenant_id="tnt_a", limit=2, **REQUESTS_A_DAY)
        harness.seam.put(quota.id, raised)
        await until(lambda: harness.gateway._snapshot.quotas[quota.id] == raised)
        assert [(await harness.infer()).status_code for _ in range(2)] == [200, 429]


async def test_a_tenants_first_limit_binds_those_who_came_before_it() -> None:
    async with serving() as harness:
        assert [(await harness.infer()).status_code for _ in range(3)] == [200, 200, 200]
        await limit(harness, REQUESTS_A_DAY | {"limit": 1})
        assert [(await harness.infer()).status_code for _ in range(2)] == [200, 429]


# ---------------------------------------------------------------- what ends otherwise


async def test_what_a_client_left_behind_is_not_reserved_for_ever() -> None:
    engine = HeldEngine()
    async with serving(engine=engine) as harness:
        await limit(harness, {"resource": "concurrency", "limit": 1})
        with pytest.raises(httpx.TimeoutException):
            await harness.client.post(
                "/v2/models/echo/infer", json=echo_body(), headers=harness.auth, timeout=0.3
            )
        engine.release.set()
        await until_passes(harness)


async def until_passes(harness: Harness) -> None:
    async with asyncio.timeout(10):
        while (await harness.infer()).status_code != 200:
            await asyncio.sleep(0.02)


async def test_a_repetition_of_an_answer_takes_nothing() -> None:
    async with serving() as harness:
        await limit(harness, REQUESTS_A_DAY | {"limit": 1})
        key = secrets.token_hex(8)
        first = await harness.infer(idempotency_key=key)
        again = await harness.infer(idempotency_key=key)
        assert (first.status_code, again.status_code) == (200, 200)
        assert again.headers["idempotency-replayed"] == "true"
        assert (await harness.infer()).status_code == 429


# ---------------------------------------------------------------- without Valkey


NOWHERE = "redis://127.0.0.1:1/0"


async def test_without_valkey_each_gateway_grants_its_part() -> None:
    async with serving(valkey_url=NOWHERE, count=2) as harness:
        await limit(harness, REQUESTS_A_DAY | {"limit": 6})
        answers = await asyncio.gather(*(harness.infer() for _ in range(8)))
        assert sorted(answer.status_code for answer in answers) == [200] * 3 + [429] * 5


async def test_without_valkey_an_installation_may_refuse() -> None:
    async with serving(valkey_url=NOWHERE, quotas_fail_open=False) as harness:
        assert (await harness.infer()).status_code == 200
        await limit(harness, REQUESTS_A_DAY | {"limit": 6})
        refused = await harness.infer()
        assert (refused.status_code, refused.json()["code"]) == (503, "quota_unavailable")
        assert refused.headers["retry-after"] == "1"


async def test_lost_accounts_are_waited_for_and_then_counted_from_what_the_ledger_says() -> None:
    client = Redis.from_url(os.environ["VALKEY_URL"])
    async with serving(quotas_fail_open=False) as harness:
        await limit(harness, REQUESTS_A_DAY | {"limit": 5})
        assert [(await harness.infer()).status_code for _ in range(2)] == [200, 200]
        client.flushall()
        assert (await harness.infer()).status_code == 503
        quota_id = next(iter(harness.gateway._snapshot.quotas))
        raise_to(client, quota_id, 2)
        async with asyncio.timeout(10):
            while (answer := await harness.infer()).status_code == 503:
                await asyncio.sleep(0.05)
        assert answer.status_code == 200
        assert [(await harness.infer()).status_code for _ in range(3)] == [200, 200, 429]


def raise_to(client: Redis, quota_id: str, used: int) -> None:
    """As the controller does it."""
    start_s = windows.span(time.time(), "day", ZoneInfo("UTC")).start_s
    row = encode([[start_s, used, 3_600_000]])
    client.eval(RAISE, 2, WHOLE, store_name("tnt_a", quota_id), row, b"1")


async def test_a_restart_gives_back_what_was_held() -> None:
    async with serving() as harness:
        await limit(harness, {"resource": "concurrency", "limit": 80})
        await harness.infer()
        quota_id = next(iter(harness.gateway._snapshot.quotas))
    raw: Any = Redis.from_url(os.environ["VALKEY_URL"]).get(store_name("tnt_a", quota_id))
    assert sum(held[0] for held in msgspec.msgpack.decode(raw)["p"].values()) == 0


async def test_a_rolled_key_and_the_old_one_share_their_limit() -> None:
    async with serving() as harness:
        first = next(iter(harness.gateway._snapshot.keys))
        await limit(harness, REQUESTS_A_DAY | {"limit": 2, "key_id": first})
        assert (await harness.infer()).status_code == 200
        harness.token = harness.publish_key(first_id=first)
        await until(lambda: len(harness.gateway._snapshot.keys) == 2)
        assert [(await harness.infer()).status_code for _ in range(2)] == [200, 429]
