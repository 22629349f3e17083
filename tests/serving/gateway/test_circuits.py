"""Breakers, the retry budget and shedding where requests flow: a gateway with real worker loops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import httpx
import pytest

from serving.contract import BindingEntry, CostCurve, ProfileEntry
from serving.errors import OutOfMemory
from serving.gateway import replicas
from serving.gateway.breaker import CONSECUTIVE_FAILURES, State
from serving.gateway.shedding import RANK, Headroom
from serving.worker.engines.contract import EngineInput, Outcome, Run
from serving.worker.engines.echo import EchoEngine
from serving.worker.testing import EchoWorker
from tests.serving.gateway.engines import HeldEngine
from tests.serving.gateway.harness import Harness, echo_body, gateway, until

POISON = 666.0


class SickEngine(EchoEngine):
    """Fails while `is_sick`, and always on rows that hold the poison."""

    def __init__(self) -> None:
        super().__init__()
        self.is_sick = False
        self.ran = 0

    def run(self, inputs: Sequence[EngineInput]) -> Run:
        self.ran += 1
        outcomes = yield from super().run(inputs)
        return [self._outcome(item, outcome) for item, outcome in zip(inputs, outcomes, strict=True)]

    def _outcome(self, item: EngineInput, outcome: Outcome) -> Outcome:
        if self.is_sick or item.tensors["x"].array.flat[0] == POISON:
            return OutOfMemory("no room on the device")
        return outcome


@asynccontextmanager
async def sick(harness: Harness, count: int) -> AsyncIterator[list[SickEngine]]:
    harness.publish_model()
    harness.publish_replicas(*(harness.address(index) for index in range(count)))
    async with AsyncExitStack() as stack:
        engines = []
        for index in range(count):
            engines.append(engine := SickEngine())
            worker = EchoWorker(harness.address(index), engine, replica_id=f"rep_{index}")
            await stack.enter_async_context(worker)
        await harness.gateway.follower.poll()
        await harness.until_ready(count=count)
        yield engines


def codes(answers: Sequence[httpx.Response]) -> list[str]:
    return ["ok" if answer.status_code == 200 else answer.json()["code"] for answer in answers]


async def ask(harness: Harness, token: str, value: float = 1.0) -> httpx.Response:
    return await harness.infer(echo_body([value]), authorization=f"Bearer {token}")


async def tenants(harness: Harness, *names: str) -> list[str]:
    tokens = []
    for name in names:
        harness.publish_tenant(f"tnt_{name}")
        tokens.append(harness.publish_key(f"tnt_{name}"))
    await harness.gateway.follower.poll()
    return tokens


async def low_tenant(harness: Harness) -> str:
    """The key of a tenant whose work is of class `batch`."""
    profile = ProfileEntry(id="pro_low", name="low", sla_class="batch", deadline_ms=5000)
    harness.seam.put("pro_low", profile)
    harness.seam.put("bnd_low", BindingEntry(id="bnd_low", profile_id="pro_low", tenant_id="tnt_low"))
    (token,) = await tenants(harness, "low")
    return token


def breaker(harness: Harness, index: int = 0) -> replicas.Breaker:
    return harness.gateway.inference.dispatcher.pool.replicas[f"rep_{index}"].breaker


def hurry(harness: Harness, index: int = 0) -> None:
    """What is open may be probed now."""
    breaker(harness, index).renewed(0.0)


async def test_a_replica_that_fails_several_tenants_is_left_alone_and_taken_back() -> None:
    async with gateway() as harness, sick(harness, 1) as (engine,):
        one, two, three = await tenants(harness, "b", "c", "d")
        engine.is_sick = True
        answers = [await ask(harness, token) for token in (one, two) * CONSECUTIVE_FAILURES]
        assert codes(answers)[:CONSECUTIVE_FAILURES] == ["out_of_memory"] * CONSECUTIVE_FAILURES
        ran = engine.ran
        refused = await ask(harness, three)
        assert (refused.status_code, refused.json()["code"]) == (503, "circuit_open")
        assert int(refused.headers["retry-after"]) >= 1 and refused.json()["numbers"]["replicas"] == 1
        assert engine.ran == ran
        engine.is_sick = False
        hurry(harness)
        assert codes([await ask(harness, three) for _ in range(3)]) == ["ok"] * 3


async def test_one_tenants_poison_is_refused_to_that_tenant_only() -> None:
    async with gateway() as harness, sick(harness, 1):
        bad, good = await tenants(harness, "bad", "good")
        for _ in range(3 * CONSECUTIVE_FAILURES):
            await ask(harness, bad, POISON)
            assert codes([await ask(harness, good)]) == ["ok"]
        assert codes([await ask(harness, bad)]) == ["circuit_open"]
        assert breaker(harness).state(0.0) is State.CLOSED


async def test_with_another_replica_nobody_notices_more_than_the_first_failures() -> None:
    async with gateway() as harness, sick(harness, 2) as engines:
        tokens = await tenants(harness, "b", "c")
        engines[0].is_sick = True
        while breaker(harness).state(0.0) is State.CLOSED:
            await asyncio.gather(*(ask(harness, token) for token in tokens * 4))
        answers = await asyncio.gather(*(ask(harness, token) for token in tokens * 20))
        assert codes(answers) == ["ok"] * 40


async def test_a_failing_probe_is_answered_by_another_replica() -> None:
    async with gateway() as harness, sick(harness, 2) as engines:
        tokens = await tenants(harness, "b", "c")
        engines[0].is_sick = True
        while breaker(harness).state(0.0) is State.CLOSED:
            await asyncio.gather(*(ask(harness, token) for token in tokens * 4))
        ran = engines[0].ran
        hurry(harness)
        assert codes([await ask(harness, harness.token)]) == ["ok"]
        assert engines[0].ran == ran + 1, "it was the probe"
        assert breaker(harness).opened >= 1 and not breaker(harness).is_closed_for("tnt_a")


async def test_a_replica_that_is_silent_fails_whoever_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "STUCK_S", 0.1)
    async with gateway() as harness:
        harness.publish_model()
        harness.publish_replicas(harness.address())
        engine = HeldEngine()
        async with EchoWorker(harness.address(), engine, replica_id="rep_0"):
            await harness.until_ready()
            held = asyncio.create_task(harness.infer(x_tidegate_deadline_ms="5000"))
            await until(engine.started.is_set)
            while not breaker(harness).tenants_stopped():
                answer = await harness.infer(x_tidegate_deadline_ms="50")
                assert codes([answer]) == ["deadline_unattainable"]
            assert codes([await harness.infer()]) == ["circuit_open"]
            engine.release.set()
            assert codes([await held]) == ["ok"]


async def test_retries_end_with_the_budget_and_urgent_requests_get_it_first() -> None:
    async with gateway() as harness:
        harness.publish_model()
        harness.publish_replicas(harness.address(0))
        first, second = HeldEngine(), HeldEngine()
        first.max_batch_rows = 1
        async with (
            EchoWorker(harness.address(0), first, replica_id="rep_0") as worker,
            EchoWorker(harness.address(1), second, replica_id="rep_1"),
        ):
            await harness.until_ready()
            second.release.set()
            token = await low_tenant(harness)
            low = [asyncio.create_task(ask(harness, token)) for _ in range(3)]
            dispatcher = harness.gateway.inference.dispatcher
            await until(lambda: dispatcher.in_flight == 3)
            high = [asyncio.create_task(harness.infer()) for _ in range(2)]
            await until(lambda: dispatcher.in_flight == 5)
            harness.publish_replicas(harness.address(0), harness.address(1))
            await harness.gateway.follower.poll()
            await harness.until_ready(count=2)
            budget = dispatcher.pool.of("mv_echo").budget
            while budget.left(5) > 3:
                budget.take(5)
            await worker.kill()
            first.release.set()
            assert codes(await asyncio.gather(*high)) == ["ok", "ok"]
            refused = [answer for answer in await asyncio.gather(*low) if answer.status_code != 200]
            assert codes(refused) == ["replica_lost"] * 2
            assert refused[0].json()["numbers"]["requests"] == 5


async def test_a_full_gateway_sheds_lowest_first() -> None:
    async with gateway() as harness:
        harness.publish_model()
        harness.publish_replicas(harness.address())
        engine = HeldEngine()
        async with EchoWorker(harness.address(), engine, replica_id="rep_0"):
            await harness.until_ready()
            dispatcher = harness.gateway.inference.dispatcher
            dispatcher._headroom = Headroom(10)
            held = [asyncio.create_task(harness.infer()) for _ in range(8)]
            await until(lambda: dispatcher.in_flight == 8)
            refused = await ask(harness, await low_tenant(harness))
            assert (refused.status_code, refused.json()["code"]) == (503, "overloaded")
            assert refused.json()["numbers"]["in_flight"] == 8
            assert int(refused.headers["retry-after"]) >= 1
            held.append(asyncio.create_task(harness.infer()))
            await until(lambda: dispatcher.in_flight == 9)
            assert codes([await harness.infer()]) == ["overloaded"]
            engine.release.set()
            assert codes(await asyncio.gather(*held)) == ["ok"] * 9


async def test_work_that_higher_classes_wait_behind_is_shed_and_named() -> None:
    async with gateway() as harness:
        harness.publish_profile(sla_class="interactive", deadline_ms=5000)
        harness.publish_model(cost=CostCurve(a_ms=3000.0, b_ms_per_row=0.0, c_ms_per_token=0.0))
        harness.publish_replicas(harness.address())
        engine = HeldEngine()
        async with EchoWorker(harness.address(), engine, replica_id="rep_0"):
            await harness.until_ready()
            tokens = [*await tenants(harness, "b", "c"), await low_tenant(harness)]
            low = tokens.pop()
            held = [asyncio.create_task(ask(harness, token)) for token in tokens * 2]
            served = harness.gateway.inference.dispatcher.pool.of("mv_echo")
            await until(lambda: served.shedding.rank == RANK["interactive"])
            refused = await ask(harness, low)
            assert codes([refused]) == ["overloaded"]
            assert refused.json()["numbers"] == {
                "sla_class": "batch",
                "waiting_work_ms": 6000,
                "deadline_ms": 5000,
            }
            assert 'tidegate_shedding{class="batch"' in (await harness.client.get("/metrics")).text
            held.append(asyncio.create_task(ask(harness, tokens[0])))
            engine.release.set()
            assert codes(await asyncio.gather(*held)) == ["ok"] * 5
