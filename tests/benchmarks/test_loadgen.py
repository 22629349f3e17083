"""The generator counts what a server really did."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from benchmarks.loadgen import LoadOutcome, Plan, play
from benchmarks.senders import Load

Behaviour = Callable[[int], Awaitable[bytes]]
OK = (
    b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nX-Tidegate-Batch-Size: 4\r\nx-tidegate-device-ms: 1.5\r\n\r\n{}"
)
BUSY = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n"


class Server:
    """Answers each request with what `behaviour` returns for its number; `bodies` keeps what came."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.behaviour: Behaviour = self._ok

    async def _ok(self, number: int) -> bytes:
        return OK

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                self.requests.append(head + await reader.readexactly(length))
                answer = await self.behaviour(len(self.requests))
                if not answer:
                    break
                writer.write(answer)
        except asyncio.IncompleteReadError:
            pass
        writer.close()


@pytest.fixture
async def server() -> AsyncIterator[tuple[Server, int]]:
    subject = Server()
    listener = await asyncio.start_server(subject.serve, "127.0.0.1", 0)
    yield subject, listener.sockets[0].getsockname()[1]
    listener.close()


async def outcome_of(port: int, *, duration_s: float = 0.4, **load: object) -> LoadOutcome:
    fields = {"name": "x", "mode": "closed", "port": port, "path": "/", "body": '{"text": %s}'} | load
    plan = Plan(loads=[Load(**fields)], duration_s=duration_s, warm_up_s=0.1)
    return (await play(plan)).loads["x"]


async def test_a_closed_loop_keeps_its_requests_outstanding(server: tuple[Server, int]) -> None:
    subject, port = server
    all_four = asyncio.Event()

    async def when_all_four_are_here(number: int) -> bytes:
        if number == 4:
            all_four.set()
        await all_four.wait()
        return OK

    subject.behaviour = when_all_four_are_here
    outcome = await outcome_of(port, connections=4)
    assert outcome.answered > 4
    assert outcome.errors == {}
    assert outcome.mean_batch_rows == 4
    assert b'{"text": "' in subject.requests[0]


async def test_device_time_is_read_from_the_receipts(server: tuple[Server, int]) -> None:
    _, port = server
    outcome = await outcome_of(port)
    assert outcome.device_ms is not None
    assert outcome.device_ms % 1.5 == 0
    assert outcome.device_ms > 0
    assert (len(outcome.quantiles_ms), outcome.quantiles_ms[-1]) == (101, outcome.max_ms)


async def test_every_class_sends_its_own_headers(server: tuple[Server, int]) -> None:
    subject, port = server
    await outcome_of(port, headers={"Authorization": "Bearer abc"})
    assert b"Authorization: Bearer abc\r\n" in subject.requests[0]


async def test_an_open_loop_counts_from_the_scheduled_arrival(server: tuple[Server, int]) -> None:
    subject, port = server
    lock = asyncio.Lock()

    async def one_at_a_time(number: int) -> bytes:
        async with lock:
            await asyncio.sleep(0.02)
        return OK

    subject.behaviour = one_at_a_time
    outcome = await outcome_of(port, mode="open", rate=100.0, connections=1, duration_s=0.6)
    assert outcome.p99_ms > 150  # arrivals queue up at twice the rate the server answers


async def test_errors_and_lost_connections_are_counted_and_not_answered(server: tuple[Server, int]) -> None:
    subject, port = server

    async def mostly_bad(number: int) -> bytes:
        return (OK, BUSY, b"")[number % 3]

    subject.behaviour = mostly_bad
    outcome = await outcome_of(port, connections=2, duration_s=0.6, target_ms=1000.0)
    assert outcome.errors["http_503"] > 0
    assert outcome.errors["lost"] > 0
    assert outcome.kept_share is not None
    assert 0 < outcome.kept_share < 1
