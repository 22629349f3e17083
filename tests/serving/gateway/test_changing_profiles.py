"""A profile changes while requests wait: they wait by the new one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx
import pytest

from serving.contract import BindingEntry, ProfileEntry
from serving.worker.engines.contract import EngineInput, Run
from serving.worker.testing import EchoWorker
from tests.serving.gateway.engines import HeldEngine
from tests.serving.gateway.harness import Harness, echo_body, gateway, until


class RecordingEngine(HeldEngine):
    """Stands still until released, then answers one request at a time and remembers in which order."""

    def __init__(self) -> None:
        super().__init__()
        self.max_batch_rows = 1
        self.order: list[float] = []

    def run(self, inputs: Sequence[EngineInput]) -> Run:
        self.order += [float(item.tensors["x"].array[0, 0]) for item in inputs]
        return (yield from super().run(inputs))


class Stage:
    """Two tenants with profiles of their own before one replica that stands still."""

    def __init__(self, harness: Harness, worker: EchoWorker, engine: RecordingEngine) -> None:
        self.harness = harness
        self.worker = worker
        self.engine = engine
        self.asked: list[asyncio.Task[httpx.Response]] = []

    def profile(self, tenant: str, **fields: Any) -> None:
        body = {"id": f"pro_{tenant}", "name": tenant, "deadline_ms": 9000.0, "max_batch_size": 1} | fields
        self.harness.seam.put(f"pro_{tenant}", ProfileEntry(**body))

    async def ask(self, token: str, value: float, **headers: str) -> asyncio.Task[httpx.Response]:
        """Send a request and wait until the worker has it."""
        seen = self._seen()
        named = {name.replace("_", "-"): text for name, text in headers.items()}
        post = self.harness.client.post(
            "/v2/models/echo/infer",
            json=echo_body([value]),
            headers={"authorization": f"Bearer {token}"} | named,
        )
        task = asyncio.create_task(post)
        self.asked.append(task)
        await until(lambda: self._seen() > seen)
        return task

    def _seen(self) -> int:
        assert self.worker.loop is not None
        return len(self.engine.order) + self.worker.loop.queued_rows

    async def finish(self) -> list[int]:
        self.engine.release.set()
        return [(await task).status_code for task in self.asked]


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with gateway() as harness:
        harness.publish_model()
        harness.publish_replicas(harness.address())
        harness.publish_tenant("tnt_b")
        engine = RecordingEngine()
        async with EchoWorker(harness.address(), engine, replica_id="rep_0") as worker:
            stage = Stage(harness, worker, engine)
            stage.profile("a", sla_class="standard")
            stage.profile("b", sla_class="batch")
            harness.seam.put("bnd_b", BindingEntry(id="bnd_b", profile_id="pro_b", tenant_id="tnt_b"))
            await harness.until_ready()
            yield stage
            engine.release.set()


async def until_amended(stage: Stage, sla_class: str) -> None:
    assert stage.worker.loop is not None
    waiting = stage.worker.loop._scheduler._waiting.works
    await until(lambda: any(work.sla_class == sla_class for work in waiting.values()))


async def test_a_raised_class_lets_waiting_requests_overtake(stage: Stage) -> None:
    mine, theirs = stage.harness.token, stage.harness.publish_key("tnt_b")
    await until(lambda: len(stage.harness.gateway._snapshot.keys) == 2)
    await stage.ask(mine, 0)
    await stage.ask(theirs, 1)
    await stage.ask(mine, 2)
    stage.profile("b", sla_class="interactive")
    await until_amended(stage, "interactive")
    assert await stage.finish() == [200] * 3
    assert stage.engine.order == [0, 1, 2]


async def test_without_a_change_the_higher_class_goes_first(stage: Stage) -> None:
    mine, theirs = stage.harness.token, stage.harness.publish_key("tnt_b")
    await until(lambda: len(stage.harness.gateway._snapshot.keys) == 2)
    await stage.ask(mine, 0)
    await stage.ask(theirs, 1)
    await stage.ask(mine, 2)
    assert await stage.finish() == [200] * 3
    assert stage.engine.order == [0, 2, 1]


async def test_a_binding_of_its_own_counts_for_waiting_requests_too(stage: Stage) -> None:
    mine, theirs = stage.harness.token, stage.harness.publish_key("tnt_b")
    await until(lambda: len(stage.harness.gateway._snapshot.keys) == 2)
    await stage.ask(mine, 0)
    await stage.ask(mine, 1)
    await stage.ask(theirs, 2)
    stage.profile("c", sla_class="interactive")
    stage.harness.seam.put(
        "bnd_c", BindingEntry(id="bnd_c", profile_id="pro_c", tenant_id="tnt_b", model="echo")
    )
    await until_amended(stage, "interactive")
    assert await stage.finish() == [200] * 3
    assert stage.engine.order == [0, 2, 1]


async def test_a_wish_for_a_lower_class_outlives_the_change(stage: Stage) -> None:
    await stage.ask(stage.harness.token, 0)
    await stage.ask(stage.harness.token, 1, x_tidegate_priority="batch")
    await stage.ask(stage.harness.token, 2)
    stage.profile("a", sla_class="interactive")
    await until_amended(stage, "interactive")
    assert await stage.finish() == [200] * 3
    assert stage.engine.order == [0, 2, 1]


async def test_a_shorter_deadline_ends_the_waiting(stage: Stage) -> None:
    await stage.ask(stage.harness.token, 0)
    waiting = await stage.ask(stage.harness.token, 1)
    stage.profile("a", deadline_ms=50.0)
    answer = await waiting
    assert answer.status_code == 503
    assert "deadline" in answer.text


async def test_a_longer_deadline_saves_what_waits_but_never_loosens_a_requests_own(stage: Stage) -> None:
    stage.profile("a", deadline_ms=2000.0)
    table = stage.harness.gateway._snapshot.profiles
    await until(lambda: table["pro_a"].deadline_ms == 2000.0)
    dispatcher = stage.harness.gateway.inference.dispatcher
    await stage.ask(stage.harness.token, 0)
    saved = await stage.ask(stage.harness.token, 1)
    tight = await stage.ask(stage.harness.token, 2, x_tidegate_deadline_ms="1500")
    stage.profile("a", deadline_ms=30_000.0)
    await until(lambda: all(each.lane.deadline_s == 30.0 for each in dispatcher.waiting()))
    assert (await tight).status_code == 503
    stage.engine.release.set()
    assert (await saved).status_code == 200
