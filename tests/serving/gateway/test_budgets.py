"""Budgets over more than one try: what was given up is still owed, what is dearer asks for more. Shares of a queue."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from serving.contract import CostCurve
from serving.gateway.breaker import State
from serving.gateway.margins import Margins
from serving.quotas.holding import Holding
from tests.serving.gateway.engines import HeldEngine
from tests.serving.gateway.harness import Harness, echo_body, gateway, until
from tests.serving.gateway.test_circuits import SickEngine, ask, breaker, codes, hurry, sick, tenants
from tests.serving.gateway.test_fallback import HEADER, two
from tests.serving.gateway.test_quotas import limit, serving

DEVICE_A_DAY: dict[str, Any] = {"resource": "device_us", "window": "day", "limit": 10**9}


async def budget(harness: Harness, **fields: Any) -> Holding:
    """Of device time, published; what the ledger counts stays where a test can look at it."""
    harness.gateway._usage.flush = lambda: None  # type: ignore[method-assign]
    await limit(harness, DEVICE_A_DAY | fields)
    return next(iter(harness.gateway._quotas.keeper.book))


def ledger_us(harness: Harness) -> int:
    return sum(used.device_us for used in harness.gateway._usage._open.values())


async def left_behind(harness: Harness, engine: HeldEngine) -> None:
    """A request whose client leaves while it runs."""
    with pytest.raises(httpx.TimeoutException):
        await harness.client.post(
            "/v2/models/echo/infer", json=echo_body(), headers=harness.auth, timeout=0.5
        )
    await until(lambda: engine.started.is_set() and harness.gateway.inference.dispatcher.in_flight == 0)


async def test_what_was_cancelled_while_it_ran_stays_reserved_until_it_is_settled() -> None:
    engine = HeldEngine()
    async with serving(engine=engine) as harness:
        holding = await budget(harness)
        await left_behind(harness, engine)
        assert holding.promised > 0 and holding.spent == 0
        engine.release.set()
        await until(lambda: holding.spent > 0)
        assert holding.promised == 0
        assert holding.spent == ledger_us(harness)


async def test_what_was_cancelled_on_a_worker_that_dies_is_reserved_no_longer() -> None:
    engine = HeldEngine()
    async with serving(engine=engine) as harness:
        holding = await budget(harness)
        await left_behind(harness, engine)
        assert holding.promised > 0
        for replica in harness.gateway.inference.dispatcher.pool.replicas.values():
            assert replica.link is not None
            replica.link.close()
        await until(lambda: holding.promised == 0)
        assert holding.spent == 0
        engine.release.set()


async def test_what_failed_on_the_device_is_charged_to_what_was_reserved() -> None:
    engine = SickEngine()
    async with serving(engine=engine) as harness:
        engine.is_sick = True
        holding = await budget(harness)
        assert (await harness.infer()).status_code >= 500
        assert holding.promised == 0
        assert holding.spent == ledger_us(harness)


@pytest.mark.parametrize(("most_ms", "status"), [(2_000, 429), (10_000, 200)])
async def test_a_dearer_fallback_answers_where_the_budget_has_room_for_it(most_ms: int, status: int) -> None:
    dear = {"cost": CostCurve(a_ms=1000.0, b_ms_per_row=0.1, c_ms_per_token=0.0)}
    async with gateway() as harness, two(harness, spare=dear):
        holding = await budget(harness, limit=most_ms * 1000)
        answer = await harness.infer(model="main")
        assert answer.status_code == status
        assert holding.promised == 0
        assert holding.spent == ledger_us(harness)
        if status == 200:
            assert answer.headers[HEADER].startswith("not_ready")
        else:
            body = answer.json()
            assert body["code"] == "insufficient_quota"
            assert body["numbers"]["needed"] > 1000


@pytest.mark.parametrize(("most", "code"), [(1, "out_of_memory"), (2, "ok")])
async def test_a_probe_that_failed_is_tried_elsewhere_where_the_budget_has_room_for_both(
    monkeypatch: pytest.MonkeyPatch, most: int, code: str
) -> None:
    async with gateway() as harness, sick(harness, 2) as engines:
        tokens = await tenants(harness, "b", "c")
        engines[0].is_sick = True
        while breaker(harness).state(0.0) is State.CLOSED:
            await asyncio.gather(*(ask(harness, token) for token in tokens * 4))
        monkeypatch.setattr(Margins, "of", lambda *_: 1000.0)  # a request may take 1.1 s
        holding = await budget(harness, limit=most * 1_100_000)
        others = ledger_us(harness)
        hurry(harness)
        assert codes([await ask(harness, harness.token)]) == [code]
        assert holding.promised == 0 and 0 < holding.spent <= 1_100_000
        assert holding.spent == ledger_us(harness) - others


async def test_who_only_finds_what_runs_in_the_way_may_try_again_soon() -> None:
    engine = HeldEngine()
    async with serving(engine=engine) as harness:
        await limit(harness, {"resource": "requests", "window": "day", "limit": 1})
        running = asyncio.ensure_future(harness.infer())
        await until(engine.started.is_set)
        refused = await harness.infer()
        body = refused.json()
        assert (refused.status_code, body["code"], refused.headers["retry-after"]) == (
            429,
            "quota_reserved",
            "1",
        )
        assert (body["numbers"]["used"], body["numbers"]["reserved"]) == (0, 1)
        engine.release.set()
        assert (await running).status_code == 200
        assert (await harness.infer()).json()["code"] == "insufficient_quota"


async def test_many_at_once_never_take_more_device_time_than_there_is() -> None:
    """Whatever is answered, left behind or refused: used and reserved together stay within the budget."""
    engine = HeldEngine()
    async with serving(engine=engine) as harness:
        holding = await budget(harness, limit=50_000)
        asked = [asyncio.ensure_future(harness.infer()) for _ in range(40)]
        await until(lambda: engine.started.is_set() and any(one.done() for one in asked))
        assert 0 < holding.promised <= 50_000
        for one in asked[::3]:
            one.cancel()
        engine.release.set()
        await asyncio.gather(*asked, return_exceptions=True)
        await until(lambda: holding.promised == 0)
        assert holding.spent == ledger_us(harness)


async def test_a_share_of_the_queue_refuses_what_would_wait_beyond_it() -> None:
    """One runs, two wait, the fourth is refused; another tenant's still may wait."""
    engine = HeldEngine()
    async with serving(engine=engine) as harness:
        await limit(harness, {"resource": "queue", "limit": 2})
        harness.publish_tenant("tnt_b")
        other = {"authorization": f"Bearer {harness.publish_key('tnt_b')}"}
        await until(lambda: len(harness.gateway._snapshot.keys) == 2)
        asked = [asyncio.ensure_future(harness.infer())]
        await until(engine.started.is_set)
        asked += [asyncio.ensure_future(harness.infer()) for _ in range(2)]
        await until(lambda: harness.gateway.inference.dispatcher.in_flight == 3)
        refused = await harness.infer()
        assert (refused.status_code, refused.json()["code"]) == (429, "queue_share_full")
        numbers = refused.json()["numbers"]
        assert (numbers["quota"], numbers["limit"], numbers["used"]) == ("waiting-requests", 2, 2)
        assert "retry-after" in refused.headers
        asked.append(asyncio.ensure_future(harness.infer(**other)))
        await until(lambda: harness.gateway.inference.dispatcher.in_flight == 4)
        engine.release.set()
        assert [answer.status_code for answer in await asyncio.gather(*asked)] == [200] * 4


async def test_a_share_of_the_queue_of_one_key_leaves_the_others_alone() -> None:
    engine = HeldEngine()
    async with serving(engine=engine) as harness:
        key_id = next(iter(harness.gateway._snapshot.keys))
        await limit(harness, {"resource": "queue", "limit": 1, "key_id": key_id, "model": "echo"})
        asked = [asyncio.ensure_future(harness.infer())]
        await until(engine.started.is_set)
        asked.append(asyncio.ensure_future(harness.infer()))
        await until(lambda: harness.gateway.inference.dispatcher.in_flight == 2)
        refused = await harness.infer()
        assert refused.json()["numbers"]["quota"] == "key-model-waiting-requests"
        harness.token = harness.publish_key()
        await until(lambda: len(harness.gateway._snapshot.keys) == 2)
        asked.append(asyncio.ensure_future(harness.infer()))
        await until(lambda: harness.gateway.inference.dispatcher.in_flight == 3)
        engine.release.set()
        assert [answer.status_code for answer in await asyncio.gather(*asked)] == [200] * 3
