"""Drives a streamed answer: chunks from the worker's link become events, as fast as the client takes them.

Back-pressure goes from end to end. A chunk is taken from the queue when the client's socket has room, credit
follows what was written, and the engine makes no more than there is credit for. A client that reads nothing
is cut by its connection's sweep (`connections.UNREAD_TICKS`), which cancels the work.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import suppress

from serving.errors import ClientClosedRequest, DataPlaneError, Draining, InvalidRequest
from serving.gateway import sse
from serving.gateway.exchange import Exchange
from serving.gateway.inference import Call, Inference
from serving.gateway.pending import Answer, Payload, Pending
from serving.gateway.routing import Lane
from serving.gateway.snapshot import Grant
from serving.quotas import fields
from serving.wire import Chunk, Result, Stages

KEEP_ALIVE_S = 15.0
FIRST_CREDIT = 4
"""A chunk may hold 1 MiB (`worker.streams.MAX_CHUNK_BYTES`) before anybody knows how large they are."""
MAX_CREDIT = 64
WINDOW_BYTES = 256 << 10
"""About so much of a stream may be on its way between engine and socket."""
_NO_STAGES = Stages(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, "idle")

Outcome = Answer | DataPlaneError


class Credit:
    """How many chunks more a worker may send, by how large they turn out to be. Pure."""

    __slots__ = ("_bytes", "_granted", "_taken")

    def __init__(self) -> None:
        self._granted = FIRST_CREDIT
        self._taken = 0
        self._bytes = 0

    def took(self, chunks: int, size_bytes: int) -> int:
        """So much was written to the client; the credit to grant for it, 0 while a grant is not worth a frame."""
        self._taken += chunks
        self._bytes += size_bytes
        mean_bytes = self._bytes // self._taken + 1
        window = min(MAX_CREDIT, max(1, WINDOW_BYTES // mean_bytes))
        missing = self._taken + window - self._granted
        if missing < (window + 1) // 2:
            return 0
        self._granted += missing
        return missing


class ChunkQueue:
    """Between the link to the worker and the task that writes. Holds no more chunks than were granted."""

    credit = FIRST_CREDIT

    def __init__(self) -> None:
        self._chunks: deque[Answer] = deque()
        self._outcome: Outcome | None = None
        self._changed = asyncio.Event()
        self.has_begun = False

    def on_chunk(self, chunk: Chunk, body: memoryview) -> None:
        self.has_begun = True
        # Copied: a view would keep the whole read buffer alive.
        self._chunks.append(Answer(Result(_NO_STAGES, chunk.tensors), memoryview(bytes(body))))
        self._changed.set()

    def on_outcome(self, outcome: Outcome) -> None:
        self._outcome = outcome
        if isinstance(outcome, ClientClosedRequest):
            self._chunks.clear()
        self._changed.set()

    async def take(self, timeout_s: float) -> list[Answer] | Outcome:
        """All chunks that wait, else the outcome; an empty list when nothing came for `timeout_s`."""
        if not self._chunks and self._outcome is None:
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._changed.wait()
        if not self._chunks and self._outcome is not None:
            return self._outcome
        chunks = list(self._chunks)
        self._chunks.clear()
        return chunks


class EventWriter:
    """The client's side of a stream; the head leaves together with the first event."""

    def __init__(self, exchange: Exchange, shape: sse.StreamShape) -> None:
        self._exchange = exchange
        self._shape = shape
        self.chunks = 0
        self.first_us = self.last_us = 0
        """When the first and the last chunk was written, since the request began."""

    async def write(self, data: bytes, chunks: int = 0) -> None:
        """Returns when the client has room for more."""
        if not self._exchange.is_started:
            await self._exchange.start_stream(self._headers())
        if chunks:
            self.last_us = self._exchange.elapsed_us()
            self.first_us = self.first_us or self.last_us
            self.chunks += chunks
        await self._exchange.write_part(data)

    async def finish(self, data: bytes) -> None:
        """Write the last events; nothing follows."""
        if not self._exchange.is_started:
            await self._exchange.start_stream(self._headers())
        await self._exchange.write_part(data, is_last=True)

    async def fail(self, error: DataPlaneError) -> None:
        """Say in the stream why it ends."""
        await self.finish(self._shape.error(error, self._exchange.request_id))

    @property
    def gap_us(self) -> int:
        """Mean time between two chunks; 0 for fewer than two."""
        return (self.last_us - self.first_us) // (self.chunks - 1) if self.chunks > 1 else 0

    def _headers(self) -> list[tuple[bytes, bytes]]:
        exchange = self._exchange
        headers = [*sse.HEADERS, (b"x-request-id", exchange.request_id.encode())]
        if exchange.lane is not None:
            headers.append((b"x-tidegate-model-version", exchange.lane.number_header))
        if exchange.trace is not None:
            headers.append((b"traceparent", exchange.trace.traceparent.encode()))
        if exchange.binding is not None:
            headers += fields.pairs(exchange.binding, time.time())
        return headers


async def respond(
    steps: Inference, exchange: Exchange, grant: Grant, lane: Lane, call: Call, payload: Payload
) -> None:
    """Answer in events. Raises `DataPlaneError`: a refusal before the first byte, else for the last event."""
    assert call.events is not None
    if exchange.scope.get("http_version") == "1.0":
        raise InvalidRequest("a streamed answer needs HTTP/1.1")
    exchange.events = EventWriter(exchange, call.events)
    exchange.stream = chunks = ChunkQueue()
    steps.send(exchange, grant, lane, call, payload, chunks.on_outcome)
    connection = exchange.connection
    if connection is not None:
        connection.on_lost = lambda: steps.abandon(exchange)
    if exchange.is_gone:
        steps.abandon(exchange)
    try:
        await _Stream(steps, exchange, exchange.events, call.events).run(chunks)
    except asyncio.CancelledError:  # the grace period of a stopping gateway is over
        raise Draining("this gateway has stopped") from None
    finally:
        if connection is not None:
            connection.on_lost = None
        steps.abandon(exchange)


class _Stream:
    """One streamed answer."""

    def __init__(
        self, steps: Inference, exchange: Exchange, writer: EventWriter, shape: sse.StreamShape
    ) -> None:
        self._steps = steps
        self._exchange = exchange
        self._writer = writer
        self._shape = shape
        self._credit = Credit()

    async def run(self, queue: ChunkQueue) -> None:
        """Until the outcome. Raises it when it is a `DataPlaneError`."""
        while True:
            taken = await queue.take(KEEP_ALIVE_S)
            if isinstance(taken, DataPlaneError):
                raise taken
            if isinstance(taken, Answer):
                await self._finish(taken)
                return
            if taken:
                await self._write(taken)
                self._grant(taken)
            else:
                await self._writer.write(sse.KEEP_ALIVE)

    @property
    def _tried(self) -> tuple[Pending, Payload]:
        """The try that answers: not always the first one."""
        assert self._exchange.pending is not None and self._exchange.payload is not None
        return self._exchange.pending, self._exchange.payload

    async def _write(self, chunks: list[Answer]) -> None:
        pending, payload = self._tried
        events = [await self._shape.chunk(pending.lane, chunk, payload) for chunk in chunks]
        await self._writer.write(b"".join(events), len(chunks))

    def _grant(self, chunks: list[Answer]) -> None:
        more = self._credit.took(len(chunks), sum(chunk.body.nbytes for chunk in chunks))
        pending, _ = self._tried
        if more and pending.replica is not None:
            pending.replica.grant(pending, more)

    async def _finish(self, answer: Answer) -> None:
        """The outcome: what it holds comes after the chunks, then the receipt."""
        (pending, _), writer, exchange = self._tried, self._writer, self._exchange
        try:
            if answer.result.tensors:
                await self._write([answer])
        except DataPlaneError:
            self._steps.count_unanswerable(pending, answer)
            raise
        times = self._steps.count_answer(exchange, pending, answer, writer.first_us)
        pending.lane.series.streamed(writer.first_us, writer.gap_us)
        receipt = sse.receipt(
            exchange, pending.lane, answer, times, chunks=writer.chunks, first_chunk_us=writer.first_us
        )
        await writer.finish(self._shape.end(pending.lane, receipt))
