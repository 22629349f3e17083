"""Who reads a stream, and how: pipelined, slowly, never, no longer."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from serving.gateway import connections
from tests.serving.gateway.harness import Harness, echo_body, until
from tests.serving.gateway.streams import (
    Events,
    Gated,
    Open,
    failed_by_code,
    post,
    serving,
    stream,
    usage,
    values,
)


async def test_a_request_pipelined_behind_a_stream_is_answered_after_it(harness: Harness) -> None:
    async with serving(harness, Open()):
        await harness.until_ready()
        reader, writer = await post(harness, echo_body(values(3)))
        writer.write(b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        answer = (await reader.read()).decode()
        writer.close()
    streamed, behind = answer.split("0\r\n\r\n", 1)
    assert streamed.count("data: ") == 4
    assert behind.startswith("HTTP/1.1 200 OK") and '{"live":true}' in behind


async def test_a_client_that_leaves_stops_the_engine_and_is_charged_for_what_ran(harness: Harness) -> None:
    engine = Gated()
    async with serving(harness, engine):
        await harness.until_ready()
        async with stream(harness, echo_body(values(1000))) as response:
            await Events(response).next()
        await until(lambda: engine.ended)
        assert engine.emitted < 20
        assert (await harness.infer()).status_code == 200
    await until(lambda: usage(harness)["requests"] == 2)
    await until(lambda: not harness.gateway.inference.dispatcher.pool.replicas["rep_0"].in_flight)
    used = usage(harness)
    assert used.pop("device_us") > 0
    assert used == {"requests": 2, "cancelled": 1, "failed": 0}
    assert failed_by_code(harness) == {"cancelled": 1}


async def test_a_client_that_does_not_read_stops_the_engine(harness: Harness) -> None:
    """2,000 parts of 40 kB would be 80 MB; far less is made while nobody reads, and all of it when somebody does."""
    parts, width = 2000, 10_000

    class Wide(Open):
        def _parts(self, tensor: Any) -> Any:
            return iter([tensor] * parts)

    engine = Wide()
    async with serving(harness, engine):
        await harness.until_ready()
        reader, writer = await post(harness, echo_body([0.5] * width), limit=1 << 16)
        await reader.readuntil(b"data: ")
        emitted = -1
        while emitted != engine.emitted:  # until two looks with a round trip between them see the same
            emitted = engine.emitted
            for _ in range(20):
                await harness.client.get("/livez")
                await asyncio.sleep(0.005)
        assert engine.emitted < parts // 2
        received = 0
        while data := await reader.read(1 << 20):
            received += data.count(b'"outputs":[{')
            if data.endswith(b"0\r\n\r\n"):
                break
        writer.close()
    assert engine.emitted == parts


async def test_a_client_that_never_reads_is_cut_and_the_device_is_free(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "UNREAD_TICKS", 1)

    class Wide(Open):
        def _parts(self, tensor: Any) -> Any:
            return iter([tensor] * 100_000)

    engine = Wide()
    async with serving(harness, engine):
        await harness.until_ready()
        _, writer = await post(harness, echo_body([0.5] * 10_000), limit=1 << 16)
        await until(lambda: engine.ended, timeout_s=20)
        writer.close()
        assert (await harness.infer()).status_code == 200
    assert engine.emitted < 100_000
    assert failed_by_code(harness) == {"cancelled": 1}


async def test_streams_that_end_in_any_way_leave_nothing_behind(harness: Harness) -> None:
    """Some read all, some leave after a while, some ask for nonsense; then everything is counted once."""
    chance = random.Random(7)

    async def one(number: int) -> None:
        parts, leaves_after = chance.randrange(1, 60), chance.randrange(1, 120)
        body = echo_body(values(parts)) if number % 7 else echo_body() | {"outputs": [{"name": "z"}]}
        async with stream(harness, body) as response:
            events = Events(response)
            for _ in range(leaves_after):
                try:
                    await events.next()
                except StopAsyncIteration:
                    return

    async with serving(harness, Open()) as worker:
        await harness.until_ready()
        await asyncio.gather(*(one(number) for number in range(80)))
        replica = harness.gateway.inference.dispatcher.pool.replicas["rep_0"]
        await until(lambda: not replica.in_flight)
        await until(lambda: usage(harness)["requests"] == 80)
        assert not any(link.requests for link in worker.intake._links)
    assert replica.outstanding_us == 0
    assert not harness.gateway.inference.dispatcher.in_flight
    recorders = list(harness.gateway._metrics.totals())
    assert all(recorder.pending == 0 for recorder, _ in recorders)
    answered = sum(counts.answered for _, counts in recorders)
    assert answered + sum(failed_by_code(harness).values()) == 80
    assert failed_by_code(harness)["invalid_request"] == 12
