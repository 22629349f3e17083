"""Streamed answers from end to end: events, back-pressure, leaving, breaking, draining."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx
import pytest

from serving.contract import DeploymentEntry, ReplicaSpec, TensorSpec
from serving.gateway import connections, deadlines, streaming
from serving.wire import PROTOCOL_VERSION, Chunk, FrameReader, Hello, Kind, encode
from serving.worker.engines.contract import Emission, EngineInput, EngineOutput, Outcome, Run
from serving.worker.engines.echo import EchoEngine
from serving.worker.testing import EchoWorker
from tests.serving.gateway.harness import Harness, echo_body, gateway, until

TEXT = (TensorSpec(name="text_input", datatype="BYTES", shape=(-1,)),)
TEXT_OUT = (TensorSpec(name="text_output", datatype="BYTES", shape=(-1,)),)
EVENTS = {"accept": "text/event-stream"}


class Gated(EchoEngine):
    """Streams its input in parts; from the second on a part leaves only when `go_on` is released for it."""

    def __init__(self) -> None:
        super().__init__(chunks=1_000_000)
        self.go_on = threading.Semaphore(0)
        self.emitted = 0
        self.ended = 0

    def run(self, inputs: Sequence[EngineInput]) -> Run:
        run = super().run(inputs)
        while True:
            try:
                step = next(run)
            except StopIteration as stop:
                self.ended += 1
                outcomes: list[Outcome] = stop.value
                return outcomes
            if isinstance(step, Emission):
                if self.emitted:
                    self._wait(step.input)
                self.emitted += 1
            yield step

    def _wait(self, item: EngineInput) -> None:
        assert item.stream is not None
        give_up = time.monotonic() + 10
        while item.stream.is_wanted and not self.go_on.acquire(timeout=0.005):
            assert time.monotonic() < give_up, "nobody opened the gate"


class Open(Gated):
    """Counts only."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on.release(1_000_000)


class Stopping(EchoEngine):
    """Fails after its first part."""

    def run(self, inputs: Sequence[EngineInput]) -> Run:
        for item in inputs:
            if item.stream is not None:
                yield Emission(item, EngineOutput({"y": item.tensors["x"]}))
        raise RuntimeError("secret detail")


@pytest.fixture
async def harness(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Harness]:
    """Usage stays where tests can read it, and a busy machine makes nobody a slow reader."""
    monkeypatch.setattr("serving.gateway.gateway.USAGE_FLUSH_S", 3600.0)
    monkeypatch.setattr("serving.worker.streams.CONTENDED_STALL_S", 60.0)
    async with gateway() as harness:
        harness.publish_model()
        harness.publish_replicas(harness.address())
        yield harness


@pytest.fixture
async def text() -> AsyncIterator[Harness]:
    """A gateway in front of a text model that streams word by word."""
    async with gateway() as harness:
        harness.publish_model("poet", version_id="mv_poet", inputs=TEXT, outputs=TEXT_OUT)
        harness.publish_replicas(harness.address(), model="poet", version_id="mv_poet")
        engine = EchoEngine(chunks=1000, is_text=True)
        async with EchoWorker(harness.address(), engine, replica_id="rep_0", version_id="mv_poet"):
            await harness.until_ready("mv_poet")
            yield harness


def serving(harness: Harness, engine: EchoEngine) -> EchoWorker:
    return EchoWorker(harness.address(), engine, replica_id="rep_0")


class Events:
    """The data of a response's events as they come."""

    def __init__(self, response: httpx.Response) -> None:
        self._lines = response.aiter_lines()

    async def next(self) -> dict[str, Any]:
        """The next event's data. Raises `StopAsyncIteration` at the end."""
        async with asyncio.timeout(10):
            while True:
                line = await anext(self._lines)
                if line.startswith("data: "):
                    return json.loads(line[6:])

    async def rest(self) -> list[dict[str, Any]]:
        events = []
        try:
            while True:
                events.append(await self.next())
        except StopAsyncIteration:
            return events


def stream(harness: Harness, body: Any, path: str = "/v2/models/echo/infer", **headers: str) -> Any:
    return harness.client.stream("POST", path, json=body, headers=harness.auth | EVENTS | headers)


def values(count: int) -> list[float]:
    return [float(value) for value in range(count)]


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
        reader, writer = await _post(harness, echo_body(), version="1.0")
        answer = await reader.read()
        writer.close()
    assert answer.startswith(b"HTTP/1.1 400")


async def test_an_engine_that_breaks_ends_the_stream_with_an_error(harness: Harness) -> None:
    async with serving(harness, Stopping()):
        await harness.until_ready()
        async with stream(harness, echo_body()) as response:
            first, last = await Events(response).rest()
    assert first["outputs"]
    assert last["code"] == "engine_failed"
    assert last["request_id"] == response.headers["x-request-id"]
    assert "secret" not in last["error"]
    assert _failed(harness) == {"engine_failed": 1}


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
    assert _failed(harness) == {"replica_lost": 1}


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
    _publish_fallback(harness)
    async with EchoWorker(harness.address(5), Open(), replica_id="rep_s", version_id="mv_small"):
        await harness.until_ready("mv_small")
        async with stream(harness, echo_body(values(3))) as response:
            events = await Events(response).rest()
    assert {event["model_name"] for event in events} == {"small"}
    assert events[-1]["receipt"]["fallback"] == "not_ready; from=echo/1"


async def test_a_stream_that_began_never_turns_to_the_fallback(harness: Harness) -> None:
    _publish_fallback(harness)
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


async def test_a_request_pipelined_behind_a_stream_is_answered_after_it(harness: Harness) -> None:
    async with serving(harness, Open()):
        await harness.until_ready()
        reader, writer = await _post(harness, echo_body(values(3)))
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
    await until(lambda: _usage(harness)["requests"] == 2)
    await until(lambda: not harness.gateway.inference.dispatcher.pool.replicas["rep_0"].in_flight)
    used = _usage(harness)
    assert used.pop("device_us") > 0
    assert used == {"requests": 2, "cancelled": 1, "failed": 0}
    assert _failed(harness) == {"cancelled": 1}


async def test_a_client_that_does_not_read_stops_the_engine(harness: Harness) -> None:
    """2,000 parts of 40 kB would be 80 MB; far less is made while nobody reads, and all of it when somebody does."""
    parts, width = 2000, 10_000

    class Wide(Open):
        def _parts(self, tensor: Any) -> Any:
            return iter([tensor] * parts)

    engine = Wide()
    async with serving(harness, engine):
        await harness.until_ready()
        reader, writer = await _post(harness, echo_body([0.5] * width), limit=1 << 16)
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
        _, writer = await _post(harness, echo_body([0.5] * 10_000), limit=1 << 16)
        await until(lambda: engine.ended, timeout_s=20)
        writer.close()
        assert (await harness.infer()).status_code == 200
    assert engine.emitted < 100_000
    assert _failed(harness) == {"cancelled": 1}


async def test_silence_is_broken_by_comments(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "KEEP_ALIVE_S", 0.01)
    engine = Gated()
    engine.emitted = 1
    async with serving(harness, engine):
        await harness.until_ready()
        async with stream(harness, echo_body(values(2))) as response:
            lines = response.aiter_lines()
            assert [await anext(lines) for _ in range(4)] == [": keep-alive", ""] * 2
            engine.go_on.release(2)
            assert [line async for line in lines if line.startswith("data: ")]


async def test_after_a_comment_a_refusal_is_an_event(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "KEEP_ALIVE_S", 0.01)
    engine = Gated()
    engine.emitted = 1
    async with serving(harness, engine):
        await harness.until_ready()
        async with stream(harness, echo_body(values(2))) as response:  # its head came with a comment
            dispatcher = harness.gateway.inference.dispatcher
            (pending,) = dispatcher.waiting()
            dispatcher.expire(pending.expires + deadlines.TICK_S)
            (last,) = await Events(response).rest()
        engine.go_on.release(10)
    assert (response.status_code, last["code"]) == (200, "deadline_unattainable")


async def test_the_deadline_is_about_the_first_part(harness: Harness) -> None:
    engine = Gated()
    async with serving(harness, engine):
        await harness.until_ready()
        async with stream(harness, echo_body(values(2))) as response:
            events = Events(response)
            await events.next()
            dispatcher = harness.gateway.inference.dispatcher
            (pending,) = dispatcher.waiting()
            dispatcher.expire(pending.deadline + 1)
            engine.go_on.release(1)
            assert len(await events.rest()) == 2


async def test_new_terms_do_not_end_a_stream_that_has_begun(harness: Harness) -> None:
    engine = Gated()
    async with serving(harness, engine):
        await harness.until_ready()
        async with stream(harness, echo_body(values(3))) as response:
            events = Events(response)
            await events.next()
            dispatcher = harness.gateway.inference.dispatcher
            (pending,) = dispatcher.waiting()
            dispatcher.amend(pending, pending.lane, time.monotonic() - 1.0)
            dispatcher.expire(time.monotonic() + 1.0)
            engine.go_on.release(2)
            assert len(await events.rest()) == 3


async def test_a_stream_may_not_go_on_for_ever(harness: Harness) -> None:
    engine = Gated()
    async with serving(harness, engine):
        await harness.until_ready()
        async with stream(harness, echo_body(values(5))) as response:
            events = Events(response)
            await events.next()
            dispatcher = harness.gateway.inference.dispatcher
            (pending,) = dispatcher.pool.replicas["rep_0"].in_flight.values()
            dispatcher.expire(pending.expires + deadlines.TICK_S)
            (last,) = await events.rest()
        engine.go_on.release(10)
    assert last["code"] == "deadline_unattainable"
    assert last["numbers"] == {"max_stream_s": deadlines.MAX_STREAM_S}


async def test_a_gateway_that_stops_lets_streams_finish(harness: Harness) -> None:
    engine = Gated()
    async with serving(harness, engine):
        await harness.until_ready()
        async with stream(harness, echo_body(values(3))) as response:
            events = Events(response)
            await events.next()
            harness.server.should_exit = True
            await until(lambda: harness.gateway.inference.is_draining)
            engine.go_on.release(2)
            assert len(await events.rest()) == 3


async def test_a_stream_that_outlives_the_grace_period_ends_with_an_error(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.server.config.timeout_graceful_shutdown = 0
    engine = Gated()
    async with serving(harness, engine):
        await harness.until_ready()
        async with stream(harness, echo_body(values(3))) as response:
            events = Events(response)
            await events.next()
            harness.server.should_exit = True
            (last,) = await events.rest()
        engine.go_on.release(10)
    assert last["code"] == "draining"


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
        await until(lambda: _usage(harness)["requests"] == 80)
        assert not any(link.requests for link in worker.intake._links)
    assert replica.outstanding_us == 0
    assert not harness.gateway.inference.dispatcher.in_flight
    recorders = list(harness.gateway._metrics.totals())
    assert all(recorder.pending == 0 for recorder, _ in recorders)
    answered = sum(counts.answered for _, counts in recorders)
    assert answered + sum(_failed(harness).values()) == 80
    assert _failed(harness)["invalid_request"] == 12


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


async def test_generate_answers_a_text_with_a_text(text: Harness) -> None:
    body = {"id": "7", "text_input": "to be or not", "parameters": {"temperature": 0.5}}
    response = await text.client.post("/v2/models/poet/generate", json=body, headers=text.auth)
    assert response.status_code == 200, response.text
    assert response.json() == {
        "model_name": "poet",
        "model_version": "1",
        "id": "7",
        "text_output": "to be or not",
    }
    assert "server-timing" in response.headers


async def test_generate_stream_sends_the_text_in_parts(text: Harness) -> None:
    path = "/v2/models/poet/versions/1/generate_stream"
    async with stream(text, {"text_input": "to be ö or not"}, path) as response:
        events = await Events(response).rest()
    assert [event["text_output"] for event in events] == ["to ", "be ", "ö ", "or ", "not", ""]
    assert events[-1]["receipt"]["chunks"] == 5


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "invalid_request"),
        ({"text_input": 5}, "invalid_request"),
        ({"text_input": "a", "parameters": {"timeout": -1}}, "invalid_request"),
        ([], "invalid_request"),
    ],
)
async def test_a_wrong_generate_body_is_refused(text: Harness, body: Any, code: str) -> None:
    for path in ("generate", "generate_stream"):
        response = await text.client.post(f"/v2/models/poet/{path}", json=body, headers=text.auth)
        assert (response.status_code, response.json()["code"]) == (400, code)


async def test_a_model_without_text_does_not_generate(echo: Harness) -> None:
    response = await echo.client.post("/v2/models/echo/generate", json={"text_input": "a"}, headers=echo.auth)
    assert (response.status_code, response.json()["param"]) == (400, "model")


@pytest.mark.parametrize("size_bytes", [1, 1000, 100_000, 4 << 20])
def test_credit_keeps_the_window_and_never_runs_dry(size_bytes: int) -> None:
    credit = streaming.Credit()
    granted = streaming.FIRST_CREDIT
    for taken in range(1, 2000):
        granted += credit.took(1, size_bytes)
        assert granted > taken
        window = max(1, min(streaming.MAX_CREDIT, streaming.WINDOW_BYTES // size_bytes))
        assert granted - taken <= max(window, streaming.FIRST_CREDIT)


def _publish_fallback(harness: Harness) -> None:
    """The model `small` on a worker of its own, where `echo` cannot answer."""
    harness.publish_model("small", version_id="mv_small")
    harness.publish_model(fallback_model="small")
    spec = ReplicaSpec(id="rep_s", version_id="mv_small", host="test", address=harness.address(5))
    harness.seam.put("dep_small", DeploymentEntry(id="dep_small", model="small", replicas=(spec,)))


def _failed(harness: Harness) -> dict[str, int]:
    out: dict[str, int] = {}
    for _, counts in harness.gateway._metrics.totals():
        for code, count in counts.failed.items():
            out[code] = out.get(code, 0) + count
    return out


def _usage(harness: Harness) -> dict[str, int]:
    used = list(harness.gateway._usage._open.values())
    return {
        name: sum(getattr(one, name) for one in used)
        for name in ("requests", "cancelled", "failed", "device_us")
    }


async def _post(
    harness: Harness, body: Any, *, version: str = "1.1", limit: int = 1 << 16
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = harness.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=limit)
    raw = json.dumps(body).encode()
    head = (
        f"POST /v2/models/echo/infer HTTP/{version}\r\nhost: x\r\nauthorization: Bearer {harness.token}\r\n"
        f"accept: text/event-stream\r\ncontent-length: {len(raw)}\r\n\r\n"
    )
    writer.write(head.encode() + raw)
    await writer.drain()
    return reader, writer
