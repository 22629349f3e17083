"""Streamed answers from end to end: events, receipts, refusals, counting, credit."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from serving.gateway import streaming
from tests.serving.gateway.harness import Harness, echo_body
from tests.serving.gateway.streams import (
    Events,
    Gated,
    Open,
    post,
    serving,
    stream,
    values,
)


async def test_every_part_is_an_event_in_order_and_the_last_one_holds_the_receipt(harness: Harness) -> None:
    async with serving(harness, Open()):
        await harness.until_ready()
        async with stream(harness, echo_body(values(50), id="mine")) as response:
            events = await Events(response).rest()
    assert response.status_code == 200
    assert [event["outputs"][0]["data"] for event in events[:-1]] == [[value] for value in values(50)]
    assert {(e["model_name"], e["model_version"], e["id"]) for e in events} == {("echo", "1", "mine")}
    last = events[-1]
    assert last["outputs"] == []
    receipt = last["receipt"]
    assert receipt["request_id"] == response.headers["x-request-id"]
    assert receipt["chunks"] == 50
    assert receipt["device_ms"] >= 0
    timing = receipt["timing"]
    first_chunk, total = timing.pop("first_chunk"), timing.pop("total")
    assert abs(sum(timing.values()) - total) < 0.0015
    assert 0 < first_chunk <= total


async def test_the_head_says_what_intermediaries_need_to_know(harness: Harness) -> None:
    async with serving(harness, Open()):
        await harness.until_ready()
        async with stream(harness, echo_body()) as response:
            await response.aread()
    headers = response.headers
    assert headers["content-type"] == "text/event-stream; charset=utf-8"
    assert headers["cache-control"] == "no-cache"
    assert headers["x-accel-buffering"] == "no"
    assert headers["transfer-encoding"] == "chunked"
    assert headers["x-tidegate-model-version"] == "1"
    assert "content-length" not in headers


async def test_the_first_part_arrives_while_the_engine_still_runs(harness: Harness) -> None:
    engine = Gated()
    async with serving(harness, engine):
        await harness.until_ready()
        async with stream(harness, echo_body(values(3))) as response:
            events = Events(response)
            assert (await events.next())["outputs"][0]["data"] == [0.0]
            assert (engine.emitted, engine.ended) == (1, 0)
            engine.go_on.release(2)
            assert len(await events.rest()) == 3


async def test_a_connection_is_used_again_after_a_stream(harness: Harness) -> None:
    async with serving(harness, Open()):
        await harness.until_ready()
        for _ in range(3):
            async with stream(harness, echo_body(values(3))) as response:
                await response.aread()
            assert (await harness.infer()).status_code == 200
        assert len(harness.server.server_state.connections) == 1


async def test_a_model_that_cannot_stream_answers_in_one_event(echo: Harness) -> None:
    async with stream(echo, echo_body([1.0, 2.0])) as response:
        first, last = await Events(response).rest()
    assert first["outputs"][0]["data"] == [1.0, 2.0]
    assert last["receipt"]["chunks"] == 1


async def test_a_refusal_before_the_first_part_is_an_ordinary_one(harness: Harness) -> None:
    async with serving(harness, Open()):
        await harness.until_ready()
        bad = {"inputs": [{"name": "z", "shape": [1, 1], "datatype": "FP32", "data": [1]}]}
        async with stream(harness, bad) as response:
            body = json.loads(await response.aread())
    assert (response.status_code, body["code"]) == (400, "invalid_tensor")
    assert response.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("change", "headers"),
    [
        ({"parameters": {"binary_data_output": True}}, {}),
        ({"outputs": [{"name": "y", "parameters": {"binary_data": True}}]}, {}),
        ({}, {"idempotency-key": "once"}),
    ],
    ids=["binary outputs", "a binary output", "idempotency key"],
)
async def test_what_a_stream_cannot_do_is_refused(
    harness: Harness, change: dict[str, Any], headers: dict[str, str]
) -> None:
    async with serving(harness, Open()):
        await harness.until_ready()
        async with stream(harness, echo_body() | change, **headers) as response:
            body = json.loads(await response.aread())
    assert (response.status_code, body["code"]) == (400, "invalid_request")


async def test_http_1_0_has_no_streams(harness: Harness) -> None:
    async with serving(harness, Open()):
        await harness.until_ready()
        reader, writer = await post(harness, echo_body(), version="1.0")
        answer = await reader.read()
        writer.close()
    assert answer.startswith(b"HTTP/1.1 400")


async def test_many_streams_run_side_by_side(harness: Harness) -> None:
    harness.publish_tenant(max_concurrency=1000)
    harness.publish_profile(deadline_ms=60_000)
    async with serving(harness, Open()):
        await harness.until_ready()

        async def one(number: int) -> None:
            sent = [float(number * 1000 + value) for value in range(30)]
            async with stream(harness, echo_body(sent)) as response:
                events = await Events(response).rest()
            assert [event["outputs"][0]["data"][0] for event in events[:-1]] == sent

        limits = httpx.Limits(max_connections=300)
        await harness.client.aclose()
        harness.client = httpx.AsyncClient(base_url=harness.url, timeout=30.0, limits=limits, verify=False)
        await asyncio.gather(*(one(number) for number in range(100)))
    assert not harness.gateway.inference.dispatcher.in_flight


async def test_streams_are_counted_like_other_answers_and_by_their_first_part(harness: Harness) -> None:
    async with serving(harness, Open()):
        await harness.until_ready()
        async with stream(harness, echo_body(values(9))) as response:
            receipt = (await Events(response).rest())[-1]["receipt"]
        text = (await harness.client.get("/metrics")).text
    assert 'outcome="ok",tenant="a",version="1"} 1.0' in text
    for stage in ("first_chunk", "chunk_gap"):
        line = next(
            line
            for line in text.splitlines()
            if line.startswith("tidegate_stage_seconds_count") and stage in line
        )
        assert line.endswith(" 1.0")
    ((_, counts),) = harness.gateway._metrics.totals()
    sums = {name: histogram.sum for name, histogram in counts.named_stages()}
    assert sums["first_chunk"] == round(receipt["timing"]["first_chunk"] * 1000)


@pytest.mark.parametrize("size_bytes", [1, 1000, 100_000, 4 << 20])
def test_credit_keeps_the_window_and_never_runs_dry(size_bytes: int) -> None:
    credit = streaming.Credit()
    granted = streaming.FIRST_CREDIT
    for taken in range(1, 2000):
        granted += credit.took(1, size_bytes)
        assert granted > taken
        window = max(1, min(streaming.MAX_CREDIT, streaming.WINDOW_BYTES // size_bytes))
        assert granted - taken <= max(window, streaming.FIRST_CREDIT)
