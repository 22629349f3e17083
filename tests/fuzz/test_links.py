"""A peer that sends broken frames loses its link, and nobody else anything."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import struct
import tempfile
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import uvloop
from hypothesis import strategies as st

from serving import wire
from serving.wire import FrameReader, Hello, Infer, Kind, Result, TensorHead, encode
from serving.worker.testing import EchoWorker
from tests.fuzz.hunt import explore
from tests.fuzz.mutations import cuts, mutated
from tests.fuzz.test_wire_bytes import STAGES, headers
from tests.serving.gateway.harness import Harness, gateway, until

BODY = struct.pack("<3f", 1.0, 2.0, 3.0)
HEAD = TensorHead("x", "FP32", (1, 3), 12)
GOOD = Infer("tnt", "standard", 5_000_000, 1, (), (HEAD,))


def frame(kind: int, request_id: int, header: bytes, body: bytes) -> bytes:
    return struct.pack("<IQBH", 11 + len(header) + len(body), request_id, kind, len(header)) + header + body


@st.composite
def frames(draw: st.DrawFn, kinds: list[Kind], good: dict[Kind, tuple[Any, bytes]]) -> bytes:
    kind = draw(st.sampled_from(kinds) | st.integers(2, 12))
    header, body = good.get(kind, (None, b""))  # type: ignore[call-overload]
    raw = b"" if header is None else msgspec.msgpack.encode(header)
    if draw(st.booleans()):
        raw = draw(headers())
    if draw(st.booleans()):
        body = draw(st.binary(max_size=40))
    return frame(kind, draw(st.sampled_from([1, 1, 1, 2])), raw, body)


to_worker = mutated(
    st.lists(
        frames(
            [Kind.INFER, Kind.INFER, Kind.INFER, Kind.CANCEL, Kind.AMEND, Kind.CREDIT, Kind.PING],
            {
                Kind.INFER: (GOOD, BODY),
                Kind.AMEND: (wire.Amend("batch", 1000, 1.0, 32, 0, 10, "run", 5), b""),
                Kind.CREDIT: (wire.Credit(2), b""),
            },
        ),
        min_size=1,
        max_size=5,
    ).map(b"".join)
)
to_gateway = mutated(
    st.lists(
        frames(
            # No HELLO: a worker of a later epoch that was never started is believed, and its word stands.
            [Kind.RESULT, Kind.RESULT, Kind.RESULT, Kind.ERROR, Kind.CHUNK, Kind.PING, Kind.PONG],
            {
                Kind.RESULT: (Result(STAGES, (TensorHead("y", "FP32", (1, 3), 12),)), BODY),
                Kind.ERROR: (wire.Failure("queue_full", "no", {"a": 1}), b""),
                Kind.CHUNK: (wire.Chunk(0, (HEAD,)), BODY),
            },
        ),
        min_size=1,
        max_size=4,
    ).map(b"".join)
)
sizes = st.lists(st.integers(1, 100), max_size=4)


class Rig:
    """An event loop that runs only while an example does, and remembers what nobody caught."""

    def __init__(self) -> None:
        self.loop = uvloop.new_event_loop()
        self.stack = contextlib.AsyncExitStack()
        self.crashes: list[Any] = []
        self.loop.set_exception_handler(lambda _, context: self.crashes.append(context))

    def run(self, work: Any) -> Any:
        self.crashes.clear()
        done = self.loop.run_until_complete(work)
        assert self.crashes == []
        return done

    def close(self) -> None:
        self.loop.run_until_complete(self.stack.aclose())
        self.loop.close()


# ---------------------------------------------------------------- a broken gateway


@pytest.fixture
def worker() -> Iterator[tuple[Rig, EchoWorker, str]]:
    rig = Rig()
    with tempfile.TemporaryDirectory(prefix="tg", dir="/tmp") as directory:
        path = f"{directory}/w"

        async def start() -> EchoWorker:
            return await rig.stack.enter_async_context(EchoWorker(f"unix:{path}"))

        yield rig, rig.run(start()), path
        rig.close()


async def attack(worker: EchoWorker, path: str, data: bytes, pieces: list[int]) -> None:
    reader, writer = await asyncio.open_unix_connection(path)
    with contextlib.suppress(ConnectionError):
        for piece in cuts(data, pieces):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
    with contextlib.suppress(ConnectionError, TimeoutError):
        await asyncio.wait_for(reader.read(1 << 16), 0.001)
    writer.close()
    await until(lambda: not worker.intake._links)
    await until(lambda: worker.intake._pending_bytes == 0)


async def ask(path: str) -> int:
    """The kind of the answer to a good request on a link of its own."""
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(b"".join(encode(Kind.INFER, 7, GOOD, BODY)))
    frames = FrameReader()
    try:
        while True:
            data = await asyncio.wait_for(reader.read(1 << 15), 10)
            assert data, "the worker closed a link that was in order"
            frames.get_buffer()[: len(data)] = data
            for answer in frames.frames(len(data)):
                if answer.request_id == 7:
                    return answer.kind
    finally:
        writer.close()


def test_a_broken_gateway_harms_no_other(worker: tuple[Rig, EchoWorker, str]) -> None:
    rig, echo, path = worker
    count = itertools.count()

    def check(data: bytes, pieces: list[int]) -> None:
        rig.run(attack(echo, path, data, pieces))
        if next(count) % 20 == 0:
            assert rig.run(ask(path)) == Kind.RESULT

    explore(check, to_worker, sizes)
    assert rig.run(ask(path)) == Kind.RESULT


# ---------------------------------------------------------------- a broken worker


class BrokenWorker:
    """Says hello as it should, and answers the first request with whatever an example holds."""

    def __init__(self) -> None:
        self.answer = b""
        self.hangs_up = True

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hello = Hello(wire.PROTOCOL_VERSION, "rep_0", "mv_echo", 1, True, 8)
        writer.write(b"".join(encode(Kind.HELLO, 0, hello)))
        frames = FrameReader()
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 15):
                frames.get_buffer()[: len(data)] = data
                for asked in frames.frames(len(data)):
                    if asked.kind == Kind.INFER:
                        writer.write(self._renamed(asked.request_id))
                        if self.hangs_up:
                            writer.close()  # what it said may be half a frame
                    elif asked.kind == Kind.PING:
                        writer.write(b"".join(encode(Kind.PONG, asked.request_id)))
        writer.close()

    def _renamed(self, request_id: int) -> bytes:
        """The answer, with the id of the request wherever it says 1."""
        return self.answer.replace(struct.pack("<Q", 1), struct.pack("<Q", request_id))


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Rig, BrokenWorker, Harness]]:
    monkeypatch.setattr("serving.gateway.replicas.RECONNECT_S", 0.0)
    monkeypatch.setattr("serving.gateway.replicas.MISMATCH_S", 0.0)
    for name in (
        "CONSECUTIVE_FAILURES",
        "LEAST_SAMPLES",
        "DEATHS",
    ):  # else its circuit opens, and nothing is tried
        monkeypatch.setattr(f"serving.gateway.breaker.{name}", 10**9)
    rig, broken = Rig(), BrokenWorker()

    async def start() -> Harness:
        harness = await rig.stack.enter_async_context(gateway())
        harness.publish_model()
        harness.publish_replicas(harness.address())
        server = await asyncio.start_unix_server(broken.serve, harness.address()[5:])
        rig.stack.callback(server.close)
        await harness.until_ready()
        return harness

    yield rig, broken, rig.run(start())
    rig.close()


def test_a_broken_worker_costs_its_requests_an_error_at_most(
    served: tuple[Rig, BrokenWorker, Harness],
) -> None:
    rig, broken, harness = served

    async def example(data: bytes) -> None:
        broken.answer = data
        await harness.until_ready()
        response = await harness.infer(x_tidegate_deadline_ms="40")
        assert response.status_code in (200, 400, 404, 408, 409, 413, 415, 422, 429, 499, 500, 503), (
            response.text
        )
        assert response.status_code == 200 or response.json()["code"]
        inference = harness.gateway.inference
        await until(lambda: inference.dispatcher.in_flight == 0)
        assert all(gate.in_flight == 0 for gate in inference._gates.values())

    def check(data: bytes) -> None:
        rig.run(example(data))

    explore(check, to_gateway, examples=100)
    broken.answer = b"".join(
        encode(Kind.RESULT, 1, Result(STAGES, (TensorHead("y", "FP32", (1, 3), 12),)), BODY)
    )

    async def good() -> bool:
        return (await harness.infer()).status_code == 200

    async def recovers() -> None:
        async with asyncio.timeout(60):
            while not await good():
                await asyncio.sleep(0.01)

    rig.run(recovers())
