"""What is kept of an answer, for how long, and what happens when it cannot be."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from serving.errors import DataPlaneError, IdempotencyUnavailable
from serving.gateway import idempotency, once, replays
from serving.gateway.idempotency import Kept, fingerprint, parse_key
from serving.gateway.replays import Lease, ReplayStore
from tests.serving.gateway.engines import HeldEngine
from tests.serving.gateway.harness import echo_body, until
from tests.serving.gateway.repetition import (
    Counting,
    CountingEngine,
    new_key,
    second_gateway,
    send,
    serving,
)
from tests.serving.gateway.test_http import Raw, post


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
