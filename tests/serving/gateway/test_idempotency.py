"""`Idempotency-Key`: the same request runs once, whoever asks again, through whichever gateway, after whatever."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.errors import DataPlaneError, EngineFailed, IdempotencyUnavailable, InvalidRequest, QueueFull
from serving.gateway import idempotency, once, replays
from serving.gateway.idempotency import Kept, fingerprint, parse_key
from serving.gateway.replays import Lease, ReplayStore
from serving.worker.engines.contract import Engine, EngineInput, Run
from serving.worker.engines.echo import EchoEngine
from serving.worker.testing import EchoWorker
from tests.serving.gateway.engines import HeldEngine
from tests.serving.gateway.harness import Harness, echo_body, gateway, until
from tests.serving.gateway.test_http import Raw, post


class CountingEngine(EchoEngine):
    """Counts what it ran, and fails what begins with a negative number."""

    def __init__(self) -> None:
        super().__init__()
        self.ran = 0

    def run(self, inputs: Sequence[EngineInput]) -> Run:
        self.ran += len(inputs)
        outcomes = yield from super().run(inputs)
        return [
            EngineFailed("a negative number") if item.tensors["x"].array.flat[0] < 0 else outcome
            for item, outcome in zip(inputs, outcomes, strict=True)
        ]


@contextlib.asynccontextmanager
async def serving(engine: Engine, **settings: Any) -> AsyncIterator[Harness]:
    """A gateway that remembers answers in the session's Valkey, before one worker."""
    async with gateway(is_started=False) as harness:
        harness.settings = dataclasses.replace(
            harness.settings, **({"valkey_url": os.environ["VALKEY_URL"]} | settings)
        )
        harness.publish_model()
        harness.publish_replicas(harness.address())
        await harness.start()
        try:
            async with EchoWorker(harness.address(), engine, replica_id="rep_0"):
                await harness.until_ready()
                yield harness
        finally:
            await harness.stop()


@contextlib.asynccontextmanager
async def second_gateway(first: Harness) -> AsyncIterator[Harness]:
    """Another gateway of the same installation: same tenant, same worker, an API key of its own."""
    async with gateway(is_started=False) as harness:
        harness.settings = dataclasses.replace(harness.settings, valkey_url=os.environ["VALKEY_URL"])
        harness.publish_model()
        harness.publish_replicas(first.address())
        await harness.start()
        try:
            await harness.until_ready()
            yield harness
        finally:
            await harness.stop()


@pytest.fixture
async def counting() -> AsyncIterator[tuple[Harness, CountingEngine]]:
    engine = CountingEngine()
    async with serving(engine) as harness:
        yield harness, engine


def new_key() -> str:
    return f'"{os.urandom(8).hex()}"'


async def send(harness: Harness, key: str, body: Any = None, **headers: str) -> httpx.Response:
    return await harness.infer(body, idempotency_key=key, **headers)


Counting = tuple[Harness, CountingEngine]


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


async def test_fifty_at_once_over_two_gateways_run_once(counting: Counting) -> None:
    one, engine = counting
    async with second_gateway(one) as two:
        key = new_key()
        answers = await asyncio.gather(*(send((one, two)[n % 2], key) for n in range(50)))
        assert engine.ran == 1
        assert {answer.status_code for answer in answers} <= {200, 409}
        firsts = [a for a in answers if a.status_code == 200 and "idempotency-replayed" not in a.headers]
        assert len(firsts) == 1
        for harness in (one, two):
            again = await send(harness, key)
            assert again.headers["idempotency-replayed"] == "true"
            assert again.content == firsts[0].content


async def test_when_the_client_leaves_the_answer_is_kept_for_its_return() -> None:
    engine = HeldEngine()
    async with serving(engine) as harness:
        key = new_key()
        raw = await Raw.open(harness)
        raw.writer.write(post(harness, json.dumps(echo_body()).encode(), f"idempotency-key: {key}"))
        await asyncio.to_thread(engine.started.wait, 5)
        raw.close()
        await until(lambda: not any(c.cycle for c in harness.server.server_state.connections))
        engine.release.set()
        body = json.dumps(echo_body()).encode()

        async def returned() -> httpx.Response:
            while True:
                answer = await harness.client.post(
                    "/v2/models/echo/infer", content=body, headers=harness.auth | {"idempotency-key": key}
                )
                if answer.status_code != 409:
                    return answer
                await asyncio.sleep(0.01)

        answer = await asyncio.wait_for(returned(), 5)
        assert (answer.status_code, answer.headers["idempotency-replayed"]) == (200, "true")
        assert sum(engine.ran) == 1


async def test_a_gateway_that_died_blocks_its_key_for_the_length_of_a_lease(
    counting: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness, engine = counting
    key, body = new_key(), json.dumps(echo_body()).encode()
    monkeypatch.setattr(replays, "LEASE_S", 0.3)
    dead = ReplayStore(os.environ["VALKEY_URL"], 64 << 20)
    begun = await dead.begin("tnt_a", parse_key(key.encode()), fingerprint("/v2/models/echo/infer", {}, body))
    assert isinstance(begun, Lease)
    await dead.close()

    async def status() -> int:
        answer = await harness.client.post(
            "/v2/models/echo/infer",
            content=body,
            headers=harness.auth | {"idempotency-key": key},
        )
        return answer.status_code

    seen = [await status()]
    give_up = asyncio.get_running_loop().time() + 5
    while seen[-1] == 409 and asyncio.get_running_loop().time() < give_up:
        await asyncio.sleep(0.02)
        seen.append(await status())
    assert (seen[-1], engine.ran) == (200, 1)


async def test_a_lease_is_renewed_while_the_request_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serving.gateway.once.RENEW_S", 0.01)
    renewed: list[str] = []

    async def noted(store: ReplayStore, lease: Lease) -> None:
        renewed.append(lease.token)

    monkeypatch.setattr(ReplayStore, "renew", noted)
    engine = HeldEngine()
    async with serving(engine) as harness:
        first = asyncio.create_task(send(harness, new_key()))
        await until(lambda: len(renewed) >= 3)
        engine.release.set()
        assert (await first).status_code == 200
        count = len(renewed)
        assert len(set(renewed)) == 1
        await send(harness, new_key())
        assert renewed[:count].count(renewed[0]) == renewed.count(renewed[0])  # not after its end


async def test_renewing_a_lease_makes_it_last() -> None:
    store = ReplayStore(os.environ["VALKEY_URL"], 64 << 20)
    lease = await store.begin("tnt_a", os.urandom(8).hex().encode(), b"f")
    assert isinstance(lease, Lease) and store._client is not None
    await store._client.pexpire(lease.record, 5000)
    await store.renew(lease)
    assert await store._client.pttl(lease.record) > 5000
    await store.release(lease)
    await store.close()


async def test_without_valkey_keyed_requests_are_refused_and_the_others_served() -> None:
    engine = CountingEngine()
    async with serving(engine, valkey_url="unix:///tmp/nobody-listens-here") as harness:
        refused = await send(harness, new_key())
        assert (refused.status_code, refused.json()["code"]) == (503, "idempotency_unavailable")
        assert "retry-after" in refused.headers
        assert engine.ran == 0
        assert (await harness.infer()).status_code == 200


async def test_what_ran_is_answered_even_if_it_cannot_be_kept(
    counting: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness, engine = counting

    async def away(store: ReplayStore, lease: Lease, kept: Kept) -> None:
        raise IdempotencyUnavailable("gone meanwhile")

    monkeypatch.setattr(ReplayStore, "finish", away)
    key = new_key()
    assert (await send(harness, key)).status_code == 200
    assert (await send(harness, key)).json()["code"] == "request_in_flight"  # until its lease is over
    assert engine.ran == 1


async def test_an_answer_that_could_not_be_kept_at_once_is_kept_as_soon_as_it_can(
    counting: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness, engine = counting
    finish, tries = ReplayStore.finish, 0

    async def away_at_first(store: ReplayStore, lease: Lease, kept: Kept) -> None:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise IdempotencyUnavailable("gone meanwhile")
        await finish(store, lease, kept)

    monkeypatch.setattr(ReplayStore, "finish", away_at_first)
    monkeypatch.setattr(once, "FINISH_RETRY_S", 0.01)
    key = new_key()
    first = await send(harness, key)
    await until(lambda: tries == 3 and not harness.gateway._once._tasks)
    again = await send(harness, key)
    assert (first.status_code, again.content, engine.ran) == (200, first.content, 1)


async def test_a_tenant_that_repeats_without_end_leaves_connections_to_the_others() -> None:
    store = ReplayStore(os.environ["VALKEY_URL"], 64 << 20)
    assert store._client is not None
    pool, begin, go = store._client.connection_pool, store._scripts[replays._BEGIN], asyncio.Event()
    busy, other = (f"tnt_{os.urandom(4).hex()}" for _ in range(2))

    async def slow_for_one(keys: Sequence[str], args: Sequence[Any]) -> object:
        if busy in keys[1]:
            connection = await pool.get_connection()
            await go.wait()
            await pool.release(connection)
        return await begin(keys=keys, args=args)

    store._scripts[replays._BEGIN] = slow_for_one  # type: ignore[assignment]
    many = [asyncio.create_task(store.begin(busy, b"%d" % index, b"f" * 16)) for index in range(50)]
    await asyncio.sleep(0)
    assert isinstance(await store.begin(other, b"key", b"f" * 16), Lease)
    go.set()
    assert all(isinstance(known, Lease) for known in await asyncio.gather(*many))
    await store.close()


async def test_a_large_answer_is_not_kept_but_its_request_runs_once_all_the_same(
    counting: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idempotency, "MAX_ANSWER_BYTES", 200)
    harness, engine = counting
    key = new_key()
    assert (await send(harness, key)).status_code == 200
    again = await send(harness, key)
    assert (again.status_code, again.json()["code"], engine.ran) == (409, "answer_not_kept", 1)


async def test_what_is_kept_is_bounded_and_running_twice_is_never_the_way_out() -> None:
    tenant = f"tnt_{os.urandom(4).hex()}"
    store = ReplayStore(os.environ["VALKEY_URL"], 64 << 20)
    await store._client.delete(f"{replays._PREFIX}bytes")  # type: ignore[union-attr]
    await store.close()
    store = ReplayStore(os.environ["VALKEY_URL"], 10_000)
    outcomes: list[str] = []
    try:
        for number in range(40):
            key = b"%d" % number
            try:
                lease = await store.begin(tenant, key, b"f")
            except DataPlaneError as error:
                outcomes.append(error.code)
                continue
            assert isinstance(lease, Lease)
            await store.finish(lease, Kept("req", b"content-type: x\r\n", b"x" * 1000))
            known = await store.begin(tenant, key, b"f")
            assert isinstance(known, Kept)
            outcomes.append("kept" if known.lines else "marked")
        # First answers, then only the fact that there was one, then nothing new.
        assert outcomes == sorted(outcomes, key=["kept", "marked", "idempotency_unavailable"].index)
        assert {"kept", "marked", "idempotency_unavailable"} == set(outcomes)
        other = await store.begin("tnt_other", os.urandom(8), b"f")
        assert isinstance(other, Lease)
        await store.release(other)
    finally:
        await store._client.delete(f"{replays._PREFIX}bytes")  # type: ignore[union-attr]
        await store.close()


async def test_an_outcome_that_lost_its_lease_overwrites_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    store = ReplayStore(os.environ["VALKEY_URL"], 64 << 20)
    key = os.urandom(8).hex().encode()
    try:
        first = await store.begin("tnt_a", key, b"f")
        assert isinstance(first, Lease)
        await store.release(first)
        second = await store.begin("tnt_a", key, b"f")
        assert isinstance(second, Lease)
        await store.finish(first, Kept("late"))
        await store.renew(first)
        await store.finish(second, Kept("right"))
        assert await store.begin("tnt_a", key, b"f") == Kept("right")
    finally:
        await store.close()


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


# ---------------------------------------------------------------- pure


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


async def test_metrics_say_what_became_of_keys(counting: Counting) -> None:
    harness, _ = counting
    key = new_key()
    for body in (echo_body(), echo_body(), echo_body([7.0])):
        await send(harness, key, body)
    text = (await harness.client.get("/metrics")).text
    for outcome in ("began", "replayed", "reused"):
        assert f'tidegate_idempotency_keys_total{{outcome="{outcome}"}} 1.0' in text
