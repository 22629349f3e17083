"""`Idempotency-Key`: the same request runs once, whoever asks again, through whichever gateway, after whatever."""

from __future__ import annotations

import asyncio
import dataclasses
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.errors import EngineFailed, InvalidRequest, QueueFull
from serving.gateway import idempotency
from serving.gateway.idempotency import fingerprint, parse_key
from tests.serving.gateway.engines import HeldEngine
from tests.serving.gateway.harness import echo_body, gateway, until
from tests.serving.gateway.repetition import (
    Counting,
    new_key,
    send,
    serving,
)


async def test_the_same_request_gets_the_same_answer_and_runs_once(counting: Counting) -> None:
    harness, engine = counting
    key = new_key()
    first = await send(harness, key, x_request_id="one")
    again = await send(harness, key, x_request_id="two")
    assert (first.status_code, again.status_code, engine.ran) == (200, 200, 1)
    assert first.content == again.content
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    assert (again.headers["x-request-id"], again.headers["x-tidegate-first-request-id"]) == ("two", "one")
    assert again.headers["server-timing"] == first.headers["server-timing"]
    assert again.headers["content-type"] == first.headers["content-type"]


async def test_a_repetition_is_not_counted_as_usage(counting: Counting) -> None:
    harness, _ = counting
    key = new_key()
    for _ in range(3):
        assert (await send(harness, key)).status_code == 200
    [row] = list(harness.gateway._usage._open.values())
    assert (row.requests, row.rows, row.failed) == (1, 1, 0)


async def test_quotes_around_a_key_make_no_difference(counting: Counting) -> None:
    harness, engine = counting
    key = new_key()
    await send(harness, key)
    again = await send(harness, key.strip('"'))
    assert (again.headers["idempotency-replayed"], engine.ran) == ("true", 1)


async def test_another_body_under_the_same_key_is_refused(counting: Counting) -> None:
    harness, engine = counting
    key = new_key()
    await send(harness, key)
    other = await send(harness, key, echo_body([4.0]))
    assert (other.status_code, other.json()["code"], engine.ran) == (422, "idempotency_key_reused", 1)
    pinned = await harness.client.post(
        "/v2/models/echo/versions/1/infer", json=echo_body(), headers=harness.auth | {"idempotency-key": key}
    )
    assert pinned.status_code == 422


async def test_keys_of_two_tenants_are_two_keys(counting: Counting) -> None:
    harness, engine = counting
    harness.publish_tenant("tnt_b")
    token = harness.publish_key("tnt_b")
    await until(lambda: "tnt_b" in harness.gateway._snapshot.tenants)
    key = new_key()
    await send(harness, key)
    other = await send(harness, key, authorization=f"Bearer {token}")
    assert (other.status_code, "idempotency-replayed" in other.headers, engine.ran) == (200, False, 2)


async def test_a_refusal_is_not_kept(counting: Counting) -> None:
    harness, engine = counting
    key = new_key()
    bad = await send(harness, key, echo_body([1.0], parameters={"timeout": 1}))
    assert bad.status_code == 503
    good = await send(harness, key)
    assert (good.status_code, "idempotency-replayed" in good.headers) == (200, False)
    assert engine.ran <= 2


async def test_a_failure_of_the_engine_is_repeated_without_running(counting: Counting) -> None:
    harness, engine = counting
    key, body = new_key(), echo_body([-1.0])
    first, again = await send(harness, key, body), await send(harness, key, body)
    assert [first.status_code, again.status_code] == [500, 500]
    assert first.json()["code"] == again.json()["code"] == "engine_failed"
    assert ("idempotency-replayed" in first.headers, again.headers["idempotency-replayed"]) == (False, "true")
    ran = engine.ran
    await send(harness, key, body)
    assert engine.ran == ran
    [row] = list(harness.gateway._usage._open.values())
    assert (row.requests, row.failed) == (1, 1)


async def test_while_the_first_runs_the_others_are_told_to_wait() -> None:
    engine = HeldEngine()
    async with serving(engine) as harness:
        key = new_key()
        first = asyncio.create_task(send(harness, key))
        await asyncio.to_thread(engine.started.wait, 5)
        busy = await send(harness, key)
        assert (busy.status_code, busy.json()["code"]) == (409, "request_in_flight")
        assert int(busy.headers["retry-after"]) >= 1
        other = await send(harness, key, echo_body([9.0]))
        assert other.status_code == 422
        engine.release.set()
        assert (await first).status_code == 200
        assert (await send(harness, key)).headers["idempotency-replayed"] == "true"
        assert sum(engine.ran) == 1


async def test_repetitions_count_against_the_rate(counting: Counting) -> None:
    harness, engine = counting
    key = new_key()
    await send(harness, key)
    harness.publish_tenant(requests_per_s=0.01, burst=1)
    await until(lambda: harness.gateway._snapshot.tenants["tnt_a"].requests_per_s == 0.01)
    answers = [await send(harness, key) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 429, 429]
    assert engine.ran == 1


@pytest.mark.parametrize(
    "key", ["", '""', '"', "a b", "ü", '"a" "b"', "a,b", "x" * 256, '"a', 'a"b', '"a";p=1']
)
async def test_a_malformed_key_is_refused(counting: Counting, key: str) -> None:
    harness, engine = counting
    response = await harness.client.post(
        "/v2/models/echo/infer",
        json=echo_body(),
        headers=[
            (b"authorization", harness.auth["authorization"].encode()),
            (b"idempotency-key", key.encode()),
        ],
    )
    assert (response.status_code, response.json()["code"], engine.ran) == (400, "invalid_request", 0)


async def test_a_key_sent_twice_is_refused(counting: Counting) -> None:
    harness, _ = counting
    headers = [*harness.auth.items(), ("idempotency-key", "a"), ("idempotency-key", "b")]
    response = await harness.client.post("/v2/models/echo/infer", json=echo_body(), headers=headers)
    assert response.status_code == 400


async def test_a_streamed_answer_takes_no_key(counting: Counting) -> None:
    harness, _ = counting
    response = await send(harness, new_key(), accept="text/event-stream")
    assert response.status_code == 400


async def test_the_embeddings_route_keeps_its_own_shape() -> None:
    async with gateway(is_started=False) as harness:
        harness.settings = dataclasses.replace(harness.settings, valkey_url=os.environ["VALKEY_URL"])
        harness.publish_model()
        await harness.start()
        response = await harness.client.post(
            "/v1/embeddings",
            json={"model": "echo", "input": "a"},
            headers=harness.auth | {"idempotency-key": "a b"},
        )
        assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid_request")
        assert response.headers["x-should-retry"] == "false"
        await harness.stop()


async def test_metrics_say_what_became_of_keys(counting: Counting) -> None:
    harness, _ = counting
    key = new_key()
    for body in (echo_body(), echo_body(), echo_body([7.0])):
        await send(harness, key, body)
    text = (await harness.client.get("/metrics")).text
    for outcome in ("began", "replayed", "reused"):
        assert f'tidegate_idempotency_keys_total{{outcome="{outcome}"}} 1.0' in text


@given(st.text(alphabet=st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=255))
def test_any_visible_characters_may_be_a_quoted_key(text: str) -> None:
    quoted = '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    assert parse_key(quoted.encode()) == text.encode()


@given(st.binary(max_size=300))
def test_any_bytes_are_a_key_or_refused(value: bytes) -> None:
    try:
        key = parse_key(value)
    except InvalidRequest:
        return
    assert 1 <= len(key) <= 255 and all(0x21 <= byte <= 0x7E for byte in key)


def test_only_what_ran_is_kept() -> None:
    assert idempotency.keep_failure("req", QueueFull("no")) is None
    kept = idempotency.keep_failure("req", EngineFailed("no", param="x", numbers={"a": 1}))
    assert kept is not None
    failure = idempotency.failure_of(idempotency.decode(idempotency.encode(kept)))
    assert failure is not None
    assert (failure.code, failure.message, failure.param, failure.numbers) == (
        "engine_failed",
        "no",
        "x",
        {"a": 1},
    )


def test_the_layout_of_a_body_is_part_of_the_request() -> None:
    one = fingerprint("/p", {}, b"abc")
    assert one != fingerprint("/p", {b"inference-header-content-length": b"1"}, b"abc")
    assert one != fingerprint("/q", {}, b"abc")
    assert one != fingerprint("/p", {}, b"abd")
    assert one == fingerprint("/p", {b"x-request-id": b"1"}, b"abc")
