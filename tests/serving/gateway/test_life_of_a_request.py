"""One request from its key to its receipt, over real HTTP and a real worker loop."""

from __future__ import annotations

import asyncio
import re

from serving.worker.testing import EchoWorker
from tests.serving.gateway.engines import PausingEngine
from tests.serving.gateway.harness import Harness, echo_body, gateway, until


async def test_a_request_is_answered_by_the_model(echo: Harness) -> None:
    response = await echo.infer(echo_body([1.5, 2.0], id="mine"))
    assert response.status_code == 200, response.text
    assert response.json() == {
        "model_name": "echo",
        "model_version": "1",
        "id": "mine",
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [1, 2], "data": [1.5, 2.0]}],
    }


async def test_every_answer_carries_a_receipt_whose_parts_sum_to_the_total(echo: Harness) -> None:
    response = await echo.infer()
    parts = dict(re.findall(r"(\w+);dur=([\d.]+)", response.headers["server-timing"]))
    assert list(parts) == ["gateway", "queue", "batch_wait", "execute", "post", "total"]
    total = float(parts.pop("total"))
    assert abs(sum(map(float, parts.values())) - total) < 0.0015
    assert response.headers["x-tidegate-model-version"] == "1"
    assert response.headers["x-tidegate-batch-size"] == "1"
    assert response.headers["x-tidegate-batch-close"] in ("full", "due", "window", "idle", "drain")
    assert float(response.headers["x-tidegate-device-ms"]) >= 0
    assert float(response.headers["x-tidegate-cost"]) >= 0
    assert float(response.headers["x-tidegate-predicted-ms"]) >= 0


async def test_a_batch_that_stood_still_for_urgent_work_says_so_in_its_receipt() -> None:
    async with gateway() as harness:
        harness.publish_profile(sla_class="interactive")
        harness.publish_model()
        harness.publish_replicas(harness.address())
        engine = PausingEngine()
        async with EchoWorker(harness.address(), engine, replica_id="rep_0") as worker:
            await harness.until_ready()
            bulk = asyncio.create_task(harness.infer(x_tidegate_priority="batch"))
            await until(engine.started.is_set)
            urgent = asyncio.create_task(harness.infer())
            await until(lambda: worker.intake._queued_rows == 1)
            engine.release.set()
            answers = await asyncio.gather(bulk, urgent)
    assert [answer.status_code for answer in answers] == [200, 200]
    interrupted, undisturbed = answers
    assert float(interrupted.headers["x-tidegate-interrupted-ms"]) > 0
    assert "x-tidegate-interrupted-ms" not in undisturbed.headers


async def test_a_refusal_says_how_long_it_took_and_of_which_request(echo: Harness) -> None:
    response = await echo.client.post("/v2/models/nothing/infer", json={"inputs": []}, headers=echo.auth)
    assert response.status_code == 404
    assert re.fullmatch(r"total;dur=\d+\.\d{3}", response.headers["server-timing"])
    assert response.headers["x-request-id"] == response.json()["request_id"]


async def test_a_request_gets_an_id_or_keeps_its_own(echo: Harness) -> None:
    response = await echo.infer()
    assert re.fullmatch(r"req_[0-9a-z]{26}", response.headers["x-request-id"])
    response = await echo.infer(x_request_id="my-own.id_1")
    assert response.headers["x-request-id"] == "my-own.id_1"
    response = await echo.infer(x_request_id="not ours")
    assert response.headers["x-request-id"].startswith("req_")
