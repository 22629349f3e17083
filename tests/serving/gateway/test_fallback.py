"""What a version cannot answer is answered by the fallback it names: when, for whom, and how the client knows."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from serving.contract import BindingEntry, DeploymentEntry, ProfileEntry, ReplicaSpec, TensorSpec
from serving.gateway.breaker import CONSECUTIVE_FAILURES
from serving.gateway.retries import RESERVE
from serving.gateway.shedding import Pressure
from serving.worker.engines.contract import Engine
from serving.worker.engines.echo import EchoEngine
from serving.worker.testing import EchoWorker
from tests.serving.gateway.engines import FakeEncoder, HeldEngine, fake_embedding
from tests.serving.gateway.harness import Harness, echo_body, gateway, until, write_tokenizer
from tests.serving.gateway.test_circuits import SickEngine

HEADER = "x-tidegate-fallback"
OTHER = (TensorSpec(name="other", datatype="FP32", shape=(-1, 1)),)


def publish(harness: Harness, name: str, place: int, **fields: Any) -> EchoWorker:
    """A model with one replica; the worker that would serve it."""
    engine: Engine = fields.pop("worker_engine", None) or EchoEngine()
    version_id, replica_id, address = f"mv_{name}", f"rep_{name}", harness.address(place)
    harness.publish_model(name, version_id=version_id, **fields)
    spec = ReplicaSpec(id=replica_id, version_id=version_id, host="test", address=address)
    harness.seam.put(f"dep_{name}", DeploymentEntry(id=f"dep_{name}", model=name, replicas=(spec,)))
    return EchoWorker(address, engine, replica_id=replica_id, version_id=version_id)


@asynccontextmanager
async def two(
    harness: Harness, *, spare: dict[str, Any] | None = None, **main: Any
) -> AsyncIterator[EchoWorker]:
    """`main` falls back to `spare`, which is ready. Yields the worker of `main`, not started."""
    worker = publish(harness, "main", 0, **({"fallback_model": "spare"} | main))
    async with publish(harness, "spare", 1, **(spare or {})):
        await harness.until_ready("mv_spare")
        yield worker


def policy(harness: Harness, late_policy: str, deadline_ms: float = 5000) -> None:
    fields: dict[str, Any] = {"late_policy": late_policy, "deadline_ms": deadline_ms}
    harness.publish_profile(**fields)


def counted(harness: Harness) -> dict[str, int]:
    return harness.gateway.inference.dispatcher.pool.of("mv_main").fallbacks


async def test_a_version_without_a_ready_replica_is_replaced_and_the_answer_says_so() -> None:
    async with gateway() as harness, two(harness):
        answer = await harness.infer(model="main")
        assert answer.status_code == 200
        assert answer.headers[HEADER] == "not_ready; from=main/1"
        assert answer.json()["model_name"] == "spare" and answer.json()["outputs"][0]["data"] == [
            1.0,
            2.0,
            3.0,
        ]
        assert counted(harness) == {"not_ready": 1}


async def test_the_version_that_ran_is_billed_and_counted() -> None:
    async with gateway() as harness, two(harness):
        await harness.infer(model="main")
        usage = {account.version_id: used for (_, account), used in harness.gateway._usage._open.items()}
        assert set(usage) == {"mv_spare"} and usage["mv_spare"].requests == 1
        series = {r.labels.version_id: r for r in harness.gateway._metrics._recorders.values()}
        assert series["mv_spare"].window.answered == 1 and not series["mv_main"].window.failed
        assert {recorder.pending for recorder in series.values()} == {0}


async def test_a_version_that_can_answer_does() -> None:
    async with gateway() as harness, two(harness) as worker, worker:
        await harness.until_ready("mv_main")
        answer = await harness.infer(model="main")
        assert answer.json()["model_name"] == "main" and HEADER not in answer.headers


async def test_a_fallback_may_be_a_version_and_wins_over_a_model() -> None:
    async with gateway() as harness, two(harness, fallback_version_id="mv_spare", fallback_model="nothing"):
        assert (await harness.infer(model="main")).headers[HEADER] == "not_ready; from=main/1"


async def test_a_request_of_a_dead_worker_is_answered_by_the_fallback() -> None:
    async with gateway() as harness:
        engine = HeldEngine()
        async with two(harness, worker_engine=engine) as worker, worker:
            await harness.until_ready("mv_main")
            request = asyncio.create_task(harness.infer(model="main"))
            await until(engine.started.is_set)
            await worker.kill()
            engine.release.set()
            answer = await request
            assert answer.headers[HEADER] == "replica_lost; from=main/1", answer.text


async def test_an_open_circuit_is_bridged() -> None:
    async with gateway() as harness:
        engine = SickEngine()
        async with two(harness, worker_engine=engine) as worker, worker:
            await harness.until_ready("mv_main")
            engine.is_sick = True
            failed = [await harness.infer(model="main") for _ in range(CONSECUTIVE_FAILURES)]
            assert {answer.json()["code"] for answer in failed} == {"out_of_memory"}
            assert (await harness.infer(model="main")).headers[HEADER] == "circuit_open; from=main/1"


async def test_a_failure_of_the_request_itself_is_no_reason() -> None:
    async with gateway() as harness, two(harness) as worker, worker:
        await harness.until_ready("mv_main")
        answer = await harness.infer({"inputs": []}, model="main")
        assert answer.status_code == 400 and counted(harness) == {}


# ---------------------------------------------------------------- late


@asynccontextmanager
async def busy(
    harness: Harness,
    late_policy: str,
    main: dict[str, Any] | None = None,
    spare: dict[str, Any] | None = None,
) -> AsyncIterator[tuple[EchoWorker, HeldEngine]]:
    """`main` runs something, and what is asked next will miss its deadline there."""
    engine = HeldEngine()
    policy(harness, late_policy)
    async with two(harness, spare=spare, worker_engine=engine, **(main or {})) as worker, worker:
        await harness.until_ready("mv_main")
        running = asyncio.create_task(harness.infer(model="main"))
        await until(engine.started.is_set)
        yield worker, engine
        engine.release.set()
        await running


async def late(harness: Harness, worker: EchoWorker, engine: HeldEngine) -> httpx.Response:
    """A request whose deadline passes while it waits behind what runs."""
    asked = asyncio.create_task(harness.infer(model="main", x_tidegate_deadline_ms="5"))
    assert worker.loop is not None
    loop = worker.loop
    await until(lambda: asked.done() or loop.queued_rows == 1)
    over = time.monotonic() + 0.01
    await until(lambda: time.monotonic() > over)
    engine.release.set()
    return await asked


async def test_a_late_answer_is_replaced_where_the_profile_says_degrade() -> None:
    async with gateway() as harness, busy(harness, "degrade") as main:
        answer = await late(harness, *main)
        assert answer.headers[HEADER] == "late; from=main/1", answer.text


async def test_a_late_answer_is_refused_where_the_profile_says_refuse() -> None:
    async with gateway() as harness, busy(harness, "refuse"):
        answer = await harness.infer(model="main", x_tidegate_deadline_ms="50")
        assert answer.json()["code"] == "deadline_unattainable"


async def test_without_a_fallback_degrading_means_answering_late() -> None:
    async with gateway() as harness, busy(harness, "degrade", {"fallback_model": None}) as main:
        answer = await late(harness, *main)
        assert answer.status_code == 200 and answer.json()["model_name"] == "main"


async def test_when_the_fallback_cannot_either_the_late_answer_is_given() -> None:
    async with gateway() as harness, busy(harness, "degrade", spare={"inputs": OTHER}) as main:
        answer = await late(harness, *main)
        assert answer.status_code == 200 and answer.json()["model_name"] == "main"
        assert HEADER not in answer.headers


async def test_a_shed_class_is_answered_by_the_fallback_where_the_profile_says_degrade() -> None:
    async with gateway() as harness:
        policy(harness, "degrade")
        async with two(harness) as worker, worker:
            await harness.until_ready("mv_main")
            shedding = harness.gateway.inference.dispatcher.pool.of("mv_main").shedding
            shedding.now, shedding._since = Pressure(2, 9.0, 1.0), time.monotonic() + 60.0
            assert (await harness.infer(model="main")).headers[HEADER] == "overloaded; from=main/1"


async def test_a_deployed_version_without_any_replica_is_replaced() -> None:
    async with gateway() as harness, two(harness):
        harness.seam.put("dep_main", DeploymentEntry(id="dep_main", model="main"))
        await harness.gateway.follower.poll()
        assert (await harness.infer(model="main")).headers[HEADER] == "not_ready; from=main/1"


# ---------------------------------------------------------------- who may, and with what


async def test_a_key_that_may_not_use_the_fallback_gets_the_refusal() -> None:
    async with gateway() as harness, two(harness):
        token = harness.publish_key(models=("main",))
        await harness.gateway.follower.poll()
        answer = await harness.infer(model="main", authorization=f"Bearer {token}")
        assert answer.json()["code"] == "model_not_ready"


async def test_a_tenant_that_was_not_granted_the_fallback_gets_the_refusal() -> None:
    async with gateway() as harness, two(harness, spare={"tenant_ids": ("tnt_other",)}):
        assert (await harness.infer(model="main")).json()["code"] == "model_not_ready"


async def test_inputs_that_do_not_fit_the_fallback_get_the_refusal() -> None:
    async with gateway() as harness, two(harness, spare={"inputs": OTHER}):
        answer = await harness.infer(model="main")
        assert (answer.status_code, answer.json()["code"]) == (503, "model_not_ready")
        assert counted(harness) == {}


async def test_a_fallback_of_a_fallback_is_not_used() -> None:
    async with gateway() as harness:
        publish(harness, "main", 0, fallback_model="spare")
        publish(harness, "spare", 1, fallback_model="third")
        async with publish(harness, "third", 2):
            await harness.until_ready("mv_third")
            assert (await harness.infer(model="main")).json()["code"] == "model_not_ready"
            assert (await harness.infer(model="spare")).headers[HEADER] == "not_ready; from=spare/1"


async def test_a_fallback_runs_under_the_promise_that_was_asked_for() -> None:
    async with gateway() as harness:
        harness.seam.put("pro_b", ProfileEntry(id="pro_b", name="b", sla_class="batch", deadline_ms=60_000))
        harness.seam.put("bnd_b", BindingEntry(id="bnd_b", profile_id="pro_b", model="spare"))
        async with two(harness):
            await harness.infer(model="main")
            recorders = harness.gateway._metrics._recorders.values()
            answered = [recorder.labels for recorder in recorders if recorder.window.answered]
            assert [(labels.version_id, labels.sla_class) for labels in answered] == [
                ("mv_spare", "standard")
            ]


@pytest.mark.parametrize("count", [1, 3000], ids=["at once", "as a task"])
async def test_text_is_tokenised_again_with_the_fallbacks_own_tokenizer(count: int) -> None:
    async with gateway() as harness:
        write_tokenizer(harness.directory / "main")
        write_tokenizer(harness.directory / "spare", first=1000)
        text: dict[str, Any] = {
            "engine": "encoder",
            "inputs": (TensorSpec(name="text", datatype="BYTES", shape=(-1,)),),
            "outputs": (TensorSpec(name="embedding", datatype="FP32", shape=(-1, 4)),),
            "options": {"max_tokens": 8, "truncate": True},
        }
        main = text | {"artifact_path": str(harness.directory / "main")}
        spare = text | {"artifact_path": str(harness.directory / "spare"), "worker_engine": FakeEncoder()}
        async with two(harness, spare=spare, **main):
            body = {"model": "main", "input": [f"w1 w{index % 90}" for index in range(count)]}
            answer = await harness.client.post("/v1/embeddings", json=body, headers=harness.auth)
            assert answer.headers[HEADER] == "not_ready; from=main/1", answer.text
            first = answer.json()["data"][0]["embedding"]
            assert answer.json()["model"] == "spare" and len(answer.json()["data"]) == count
            assert _floats(first) == fake_embedding([1001, 1004, 1003, 1002])


def _floats(embedding: Any) -> list[float]:
    if isinstance(embedding, str):
        return list(map(float, np.frombuffer(base64.b64decode(embedding), "<f4")))
    return list(map(float, embedding))


async def test_a_client_that_leaves_while_the_fallback_runs_cancels_it() -> None:
    async with gateway() as harness:
        engine = HeldEngine()
        async with two(harness, spare={"worker_engine": engine}):
            request = asyncio.create_task(harness.infer(model="main"))
            await until(engine.started.is_set)
            dispatcher = harness.gateway.inference.dispatcher
            request.cancel()
            await until(lambda: dispatcher.in_flight == 0)
            usage = harness.gateway._usage._open.values()
            assert sum(used.cancelled for used in usage) == 1
            engine.release.set()


async def test_the_refusal_is_counted_once_under_what_was_asked_when_both_fail() -> None:
    async with gateway() as harness:
        sick = SickEngine()
        sick.is_sick = True
        async with two(harness, spare={"worker_engine": sick}):
            answer: httpx.Response = await harness.infer(echo_body([1.0]), model="main")
            assert answer.json()["code"] == "model_not_ready"
            recorders = harness.gateway._metrics._recorders.values()
            failed = {r.labels.version_id: r.window.failed for r in recorders if r.window.failed}
            assert failed == {"mv_main": {"model_not_ready": 1}}
            assert {recorder.pending for recorder in recorders} == {0}


async def test_what_is_done_about_failures_is_in_the_metrics() -> None:
    async with gateway() as harness, two(harness) as worker:
        async with worker:
            await harness.until_ready("mv_main")
            await harness.infer(model="main")
        await until(lambda: not harness.gateway.inference.dispatcher.pool.is_ready("mv_main"))
        await harness.infer(model="main")
        text = (await harness.client.get("/metrics")).text
        samples = {
            (
                sample.name,
                *(sample.labels.get(label) for label in ("model", "version", "reason", "replica")),
            ): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
        assert samples["tidegate_fallbacks_total", "main", "1", "not_ready", None] == 1
        assert samples["tidegate_retry_budget", "main", "1", None, None] == RESERVE
        assert samples["tidegate_circuit_state", "main", "1", None, "rep_main"] == 0
        assert samples["tidegate_circuit_opened_total", "spare", "1", None, "rep_spare"] == 0
