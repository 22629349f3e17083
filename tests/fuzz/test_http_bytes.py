"""Whatever bytes a client sends, its connection ends in answers or a close, and nothing of it stays behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import uvloop
from hypothesis import strategies as st

from serving.gateway import exchange
from serving.gateway.connections import Connection
from serving.worker.testing import EchoWorker
from tests.fuzz.hunt import explore
from tests.fuzz.mutations import cuts, mutated
from tests.serving.gateway import harness as harnesses
from tests.serving.gateway.harness import Harness, echo_body, gateway, until
from tests.serving.gateway.test_http import Raw

TOKEN = b"<token>"
KNOWN = {100, 200, 204, 400, 401, 403, 404, 405, 408, 409, 413, 415, 422, 429, 431, 503}
LONGEST_TICKS = 400
"""Seconds of a client's silence, played fast: every timeout of a connection is shorter."""

targets = st.sampled_from(
    [b"POST /v2/models/echo/infer"] * 6
    + [b"POST /v1/embeddings", b"POST /v2/models/echo/versions/1/infer", b"POST /v2/models/none/infer"]
    + [b"POST /v2/models/echo/generate", b"POST /v2/models/echo/generate_stream"]
    + [b"GET /v2/models/echo", b"GET /livez", b"HEAD /v1/models", b"OPTIONS /v1/embeddings", b"CONNECT a:1"]
    + [b"GET /%2e%2e/%00", b"PRI *", b"DELETE /v2", b"POST /v2/models/" + b"x" * 300 + b"/infer"]
)
fields = st.sampled_from(
    [
        b"content-type: application/json",
        b"accept: text/event-stream",
        b"content-type: multipart/form-data",
        b"content-encoding: gzip",
        b"connection: close",
        b"connection: keep-alive, upgrade",
        b"upgrade: h2c",
        b"expect: 100-continue",
        b"te: trailers",
        b"trailer: x",
        b"x-request-id: mine",
        b"x-tidegate-deadline-ms: 5000",
        b"x-tidegate-deadline-ms: 0",
        b"x-tidegate-priority: batch",
        b"x-tidegate-priority: best",
        b"traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        b"traceparent: 00-0",
        b"tracestate: a=1,b=2",
        b"idempotency-key: abc",
        b"inference-header-content-length: 2",
        b"inference-header-content-length: 99999",
        b"x-api-key: tg_nothing",
        b"authorization: Bearer tg_nothing",
        b"x: \xff\x80",
    ]
)
bodies = st.sampled_from(
    [
        json.dumps(echo_body()).encode(),
        json.dumps(echo_body([1.0] * 400, id="HTTP")).encode(),
        json.dumps(echo_body(parameters={"priority": 3, "timeout": 10_000_000})).encode(),
        b'{"model":"echo","input":"a"}',
        b'{"inputs":' + b"[" * 60,
        b"{}\x00\x01",
        b"",
    ]
) | st.binary(max_size=64)


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    body = draw(bodies)
    lines = [
        draw(targets) + draw(st.sampled_from([b" HTTP/1.1"] * 8 + [b" HTTP/1.0", b" HTTP/9.9", b""])),
        b"host: test",
    ]
    if draw(st.integers(0, 9)):
        lines.append(b"authorization: Bearer " + TOKEN)
    lines += draw(st.lists(fields, max_size=3))
    framing = draw(st.sampled_from(["length"] * 6 + ["chunked", "chunked", "wrong", "both", "twice", "none"]))
    if framing in ("length", "both", "twice"):
        lines += [b"content-length: %d" % len(body)] * (2 if framing == "twice" else 1)
    if framing == "wrong":
        lines.append(
            b"content-length: "
            + draw(st.sampled_from([b"0", b"5", b"70", b"-1", b"1_0", b"99999999999999999999", b"x"]))
        )
    if framing in ("chunked", "both"):
        lines.append(b"transfer-encoding: chunked")
        size = draw(st.integers(1, 80))
        parts = [body[at : at + size] for at in range(0, len(body), size)]
        body = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
        body += draw(st.sampled_from([b"0\r\n\r\n", b"0\r\nx: y\r\n\r\n", b"0\r\n", b""]))
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


streams = mutated(st.lists(requests(), min_size=1, max_size=3).map(b"".join))
sizes = st.lists(st.integers(1, 200), max_size=5)


class Served:
    """A gateway and its event loop, which runs only while an example does."""

    def __init__(self, loop: asyncio.AbstractEventLoop, harness: Harness) -> None:
        self.loop, self.harness = loop, harness
        self.crashes: list[Any] = []

    def try_out(self, data: bytes, sizes: list[int]) -> None:
        self.crashes.clear()
        data = data.replace(TOKEN, self.harness.token.encode())
        out = self.loop.run_until_complete(self._said(data, sizes))
        assert out == b"" or out.startswith(b"HTTP/1.1 ")
        statuses = {int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", out)}
        assert statuses <= KNOWN, statuses
        assert self.crashes == []

    async def _said(self, data: bytes, sizes: list[int]) -> bytes:
        """All that came back until the connection was closed."""
        connections = self.harness.server.server_state.connections
        raw = await Raw.open(self.harness)
        await until(lambda: len(connections) == 1)
        [connection] = connections
        reading = self.loop.create_task(raw.reader.read())
        with contextlib.suppress(ConnectionError):
            for piece in cuts(data, sizes):
                raw.writer.write(piece)
                await raw.writer.drain()
                await asyncio.sleep(0)
        await until(lambda: not _is_working(connection))
        await _outwait(connection, reading)
        with contextlib.suppress(ConnectionError):
            await asyncio.wait_for(asyncio.shield(reading), 10)
        raw.close()
        await self._nothing_stays()
        return b"" if reading.exception() else reading.result()

    async def _nothing_stays(self) -> None:
        inference, state = self.harness.gateway.inference, self.harness.server.server_state
        await until(lambda: not state.connections and not state.tasks)
        assert inference.dispatcher.in_flight == 0
        assert inference.room.held_bytes == 0
        assert all(gate.in_flight == 0 for gate in inference._gates.values())
        recorders = self.harness.gateway._metrics._recorders.values()
        assert all(recorder.pending == 0 for recorder in recorders)


def _is_working(connection: Any) -> bool:
    """Whether something is on its way without the client's help."""
    if connection.transport is None or connection.transport.is_closing():
        return False
    cycle = connection.cycle
    return bool(connection.pipeline) or (
        cycle is not None and not cycle.response_complete and not cycle.more_body
    )


async def _outwait(connection: Connection, reading: asyncio.Task[bytes]) -> None:
    """The client says nothing more: the clock that bounds its patience runs fast."""
    patience = exchange.BODY_TIMEOUT_S
    exchange.BODY_TIMEOUT_S = -1e9
    try:
        for _ in range(LONGEST_TICKS):
            if reading.done():
                return
            connection.tick()
            for _ in range(3):
                await asyncio.sleep(0)
            if _is_working(connection):
                await until(lambda: not _is_working(connection))
    finally:
        exchange.BODY_TIMEOUT_S = patience


@pytest.fixture(scope="module", params=["hot", "asgi"])
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    before = harnesses.has_hot_routes
    harnesses.has_hot_routes = request.param == "hot"
    loop = uvloop.new_event_loop()
    stack = contextlib.AsyncExitStack()

    async def start() -> Harness:
        harness = await stack.enter_async_context(gateway())
        harness.publish_model()
        harness.publish_replicas(harness.address())
        await stack.enter_async_context(EchoWorker(harness.address(), replica_id="rep_0"))
        await harness.until_ready()
        return harness

    served = Served(loop, loop.run_until_complete(start()))
    loop.set_exception_handler(lambda _, context: served.crashes.append(context))
    try:
        yield served
    finally:
        loop.run_until_complete(stack.aclose())
        loop.close()
        harnesses.has_hot_routes = before


def test_every_connection_ends_and_leaves_nothing_behind(served: Served) -> None:
    explore(served.try_out, streams, sizes, examples=200)
    response = served.loop.run_until_complete(served.harness.infer())
    assert response.status_code == 200
