"""What becomes of a stream when its engine, its worker or its way fails."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from serving.wire import PROTOCOL_VERSION, Chunk, FrameReader, Hello, Kind, encode
from serving.worker.engines.contract import EngineInput, Run
from serving.worker.testing import EchoWorker
from tests.serving.gateway.harness import Harness, echo_body, until
from tests.serving.gateway.streams import (
    EVENTS,
    Events,
    Gated,
    Open,
    Stopping,
    failed_by_code,
    publish_fallback,
    serving,
    stream,
    values,
)


async def test_an_engine_that_breaks_ends_the_stream_with_an_error(harness: Harness) -> None:
    async with serving(harness, Stopping()):
        await harness.until_ready()
        async with stream(harness, echo_body()) as response:
            first, last = await Events(response).rest()
    assert first["outputs"]
    assert last["code"] == "engine_failed"
    assert last["request_id"] == response.headers["x-request-id"]
    assert "secret" not in last["error"]
    assert failed_by_code(harness) == {"engine_failed": 1}


async def test_a_worker_that_dies_in_the_middle_ends_the_stream_and_nothing_is_tried_again(
    harness: Harness,
) -> None:
    harness.publish_replicas(harness.address(0), harness.address(1))
    engines = [Gated(), Gated()]
    workers = [EchoWorker(harness.address(n), engines[n], replica_id=f"rep_{n}") for n in range(2)]
    async with workers[0], workers[1]:
        await harness.until_ready(count=2)
        async with stream(harness, echo_body(values(5))) as response:
            events = Events(response)
            await events.next()
            serving_one = next(n for n, engine in enumerate(engines) if engine.emitted)
            await workers[serving_one].kill()
            (last,) = await events.rest()
        for engine in engines:
            engine.go_on.release(100)
    assert last["code"] == "replica_lost"
    assert engines[1 - serving_one].emitted == 0
    assert failed_by_code(harness) == {"replica_lost": 1}


@pytest.mark.parametrize(
    ("accept", "header"),
    [("*/*", Chunk(0, ())), ("text/event-stream", None)],
    ids=["nobody asked for chunks", "no header"],
)
async def test_a_worker_that_sends_what_it_must_not_loses_its_link(
    harness: Harness, accept: str, header: Chunk | None
) -> None:
    class Impostor(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            self.transport, self.frames = transport, FrameReader()
            hello = Hello(PROTOCOL_VERSION, "rep_0", "mv_echo", 1, True, 8)
            transport.write(b"".join(encode(Kind.HELLO, 0, hello)))

        def data_received(self, data: bytes) -> None:
            self.frames.get_buffer()[: len(data)] = data
            for frame in self.frames.frames(len(data)):
                if frame.kind == Kind.INFER:
                    self.transport.write(b"".join(encode(Kind.CHUNK, frame.request_id, header)))

    listening = await asyncio.get_running_loop().create_unix_server(Impostor, harness.address()[5:])
    await harness.until_ready()
    response = await harness.infer(accept=accept)
    listening.close()
    assert (response.status_code, response.json()["code"]) == (503, "replica_lost")


async def test_requests_avoid_a_replica_that_streams(harness: Harness) -> None:
    harness.publish_replicas(harness.address(0), harness.address(1))
    engines = [Gated(), Gated()]
    workers = [EchoWorker(harness.address(n), engines[n], replica_id=f"rep_{n}") for n in range(2)]
    async with workers[0], workers[1]:
        await harness.until_ready(count=2)
        pool = harness.gateway.inference.dispatcher.pool
        pool.of("mv_echo").streamed(8_000_000)
        async with stream(harness, echo_body(values(5))) as response:
            await Events(response).next()
            (busy,) = [replica for replica in pool.replicas.values() if replica.in_flight]
            chosen = {pool.of("mv_echo").choose("tnt_a") for _ in range(50)}
            assert chosen == set(pool.replicas.values()) - {busy}
        await until(lambda: not busy.in_flight)
        assert busy.streams == 0


async def test_a_worker_that_dies_before_the_first_part_is_replaced_unnoticed(harness: Harness) -> None:
    class Waiting(Gated):
        def __init__(self) -> None:
            super().__init__()
            self.emitted = 1
            self.started = threading.Event()

        def run(self, inputs: Sequence[EngineInput]) -> Run:
            self.started.set()
            return (yield from super().run(inputs))

    harness.publish_replicas(harness.address(0), harness.address(1))
    engines = [Waiting(), Waiting()]
    workers = [EchoWorker(harness.address(n), engines[n], replica_id=f"rep_{n}") for n in range(2)]
    async with workers[0], workers[1]:
        await harness.until_ready(count=2)
        asked = asyncio.create_task(
            harness.client.post("/v2/models/echo/infer", json=echo_body(), headers=harness.auth | EVENTS)
        )
        await until(lambda: any(engine.started.is_set() for engine in engines))
        serving_one = next(n for n, engine in enumerate(engines) if engine.started.is_set())
        await workers[serving_one].kill()
        for engine in engines:
            engine.go_on.release(100)
        response = await asked
    assert response.status_code == 200
    assert response.text.count("data: ") == 4


async def test_a_fallback_streams_instead_and_the_receipt_says_so(harness: Harness) -> None:
    publish_fallback(harness)
    async with EchoWorker(harness.address(5), Open(), replica_id="rep_s", version_id="mv_small"):
        await harness.until_ready("mv_small")
        async with stream(harness, echo_body(values(3))) as response:
            events = await Events(response).rest()
    assert {event["model_name"] for event in events} == {"small"}
    assert events[-1]["receipt"]["fallback"] == "not_ready; from=echo/1"


async def test_a_stream_that_began_never_turns_to_the_fallback(harness: Harness) -> None:
    publish_fallback(harness)
    engine, other = Gated(), Open()
    worker = serving(harness, engine)
    async with worker, EchoWorker(harness.address(5), other, replica_id="rep_s", version_id="mv_small"):
        await harness.until_ready("mv_small")
        await harness.until_ready()
        async with stream(harness, echo_body(values(3))) as response:
            events = Events(response)
            await events.next()
            await worker.kill()
            (last,) = await events.rest()
        engine.go_on.release(10)
    assert (last["code"], other.emitted) == ("replica_lost", 0)
