"""The worker's network side: frames in, frames out, on one asyncio loop beside the engine thread.

Answers of one tick leave in one write per link. Everything is bounded: links, rows per request, pending
bytes; the scheduler bounds the queue. A link whose bytes make no sense is closed, its work cancelled.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import structlog

from serving.errors import (
    ClientClosedRequest,
    DataPlaneError,
    Draining,
    EngineFailed,
    ModelNotReady,
    QueueFull,
    from_code,
)
from serving.framed import FramedConnection
from serving.scheduling.work import Refusal
from serving.wire import (
    Amend,
    Frame,
    FrameError,
    Hello,
    Kind,
    decode_amend,
    decode_credit,
    decode_infer,
    encode,
)
from serving.worker import requests
from serving.worker.engines.contract import Engine, EngineOutput, Outcome
from serving.worker.loop import EngineLoop, Settled
from serving.worker.requests import Part, Request
from serving.worker.spans import WorkerSpans, is_recorded
from serving.worker.streams import Outbox, Stream

log = structlog.get_logger(__name__)

MAX_LINKS = 256
MAX_PENDING_BYTES = 512 << 20
MAX_UNSENT_BYTES = 256 << 20
"""A gateway that lets this much pile up is not reading: its link is closed."""


class Link(FramedConnection):
    """One connection from a gateway."""

    def __init__(self, intake: Intake) -> None:
        super().__init__()
        self._intake = intake
        self._gone: asyncio.Future[None] = self._loop.create_future()
        self.requests: dict[int, Request] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._intake.opened(self)

    def on_frames(self, frames: Sequence[Frame]) -> None:
        self._intake.receive(self, frames)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if not self._gone.done():
            self._gone.set_result(None)
        self._intake.lost(self)

    def finish(self) -> asyncio.Future[None]:
        """Send what is queued, then close; the future is done when the link is gone."""
        self._flush()
        if self._transport is not None:
            self._transport.close()
        return self._gone

    def _flush(self) -> None:
        super()._flush()
        transport = self._transport
        if transport is not None and transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            log.warning("link.not_reading", unsent_bytes=transport.get_write_buffer_size())
            transport.abort()


class Intake:
    """Accepts links, turns INFER frames into work, and outcomes into answers. Lives on the event loop."""

    def __init__(
        self, engine: Engine, hello: Callable[[], Hello], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._engine = engine
        self._hello = hello
        self._clock = clock
        self._links: set[Link] = set()
        self._pending_bytes = 0
        self._server: asyncio.Server | None = None
        self._refuse_with: DataPlaneError | None = ModelNotReady("the model is loading", retry_after_s=1.0)
        self.engine_loop: EngineLoop | None = None
        self.spans: WorkerSpans | None = None
        """Set where spans are collected."""
        self._outbox: Outbox
        self._stream_finished = asyncio.Event()

    async def listen(self, address: str) -> None:
        """Listen on `unix:/path` (private to this user) or `tcp:host:port`. Raises `OSError`."""
        loop, (kind, _, place) = asyncio.get_running_loop(), address.partition(":")
        self._outbox = Outbox(loop, self._send_chunk)
        if kind == "unix":
            self._server = await loop.create_unix_server(self._new_link, place)
            os.chmod(place, 0o600)
        elif kind == "tcp":
            host, _, port = place.rpartition(":")
            self._server = await loop.create_server(self._new_link, host.strip("[]"), int(port))
        else:
            raise ValueError(f"an address is unix:/path or tcp:host:port, not {address!r}")

    def accept(self, engine_loop: EngineLoop) -> None:
        """The engine is ready: tell every link and take requests."""
        self.engine_loop = engine_loop
        self._refuse_with = None
        self.greet()

    def drain(self) -> None:
        """Take nothing new; what is queued is still answered."""
        if isinstance(self._refuse_with, Draining):
            return
        self._refuse_with = Draining("this replica is draining", retry_after_s=0.1)
        self.greet()

    @property
    def is_accepting(self) -> bool:
        return self._refuse_with is None

    def greet(self) -> None:
        """Send the present state to every link."""
        for link in self._links:
            link.send(encode(Kind.HELLO, 0, self._hello()))

    async def close(self, timeout_s: float = 5.0) -> None:
        """Stop listening and let the last answers leave; links that take longer are cut."""
        if self._server is not None:
            self._server.close()
        if timeout_s:
            await self._wait_for_readers(timeout_s)
        closing = [link.finish() for link in self._links]
        if closing and timeout_s:
            await asyncio.wait(closing, timeout=timeout_s)
        for link in list(self._links):
            link.close()

    async def _wait_for_readers(self, timeout_s: float) -> None:
        """Until the streams whose engine has finished are read to their end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while any(
                    r.stream and r.stream.is_done for link in self._links for r in link.requests.values()
                ):
                    self._stream_finished.clear()
                    await self._stream_finished.wait()

    # ------------------------------------------------------------ links

    def _new_link(self) -> Link:
        return Link(self)

    def opened(self, link: Link) -> None:
        if len(self._links) >= MAX_LINKS:
            log.warning("link.refused", links=len(self._links))
            link.close()
            return
        self._links.add(link)
        link.send(encode(Kind.HELLO, 0, self._hello()))

    def lost(self, link: Link) -> None:
        """Nobody waits for the answers of this link any more: queued work is dropped."""
        self._links.discard(link)
        for request in list(link.requests.values()):
            self._cancel(request)

    def receive(self, link: Link, frames: Sequence[Frame]) -> None:
        """Deal with the frames of one read; new work is queued under one lock.

        Raises `FrameError` or `msgspec.DecodeError` when a frame breaks the protocol; requests before it
        are queued all the same, and cancelled when the link closes.
        """
        opened: list[Request] = []
        try:
            for frame in frames:
                if frame.kind == Kind.INFER:
                    self._open(link, frame, opened)
                else:
                    self._control(link, frame, opened)
        finally:
            self._submit(opened)

    # ------------------------------------------------------------ in

    def _control(self, link: Link, frame: Frame, opened: list[Request]) -> None:
        if frame.kind == Kind.CANCEL:
            self._submit(opened)  # the request may be in the same read
            if (request := link.requests.get(frame.request_id)) is not None:
                self._cancel(request)
        elif frame.kind == Kind.AMEND:
            self._submit(opened)
            self._amend(link.requests.get(frame.request_id), decode_amend(frame.header))
        elif frame.kind == Kind.CREDIT:
            self._grant(link.requests.get(frame.request_id), decode_credit(frame.header).chunks)
        elif frame.kind == Kind.PING:
            link.send(encode(Kind.PONG, frame.request_id))
        elif frame.kind != Kind.PONG:
            raise FrameError(f"a worker takes no frames of kind {frame.kind}")

    def _open(self, link: Link, frame: Frame, opened: list[Request]) -> None:
        request_id, _, header, body = frame
        infer = decode_infer(header)
        if request_id in link.requests:
            raise FrameError(f"request id {request_id} is in use")
        request = Request(link, request_id, self._clock(), len(body))
        if self.spans is not None and is_recorded(infer.traceparent):
            request.traceparent = infer.traceparent
        try:
            self._check_room(request)
            item = requests.parse(infer, body, self._engine)
            if infer.stream_credit > 0:
                stream = Stream(request, infer.stream_credit, self._outbox)
                requests.open_stream(request, infer, item, stream, self._engine.max_batch_rows)
        except DataPlaneError as error:
            self._fail(request, error)
            return
        requests.cut(request, infer, item, self._engine.max_batch_rows)
        link.requests[request_id] = request
        self._pending_bytes += request.size_bytes
        opened.append(request)

    def _check_room(self, request: Request) -> None:
        if self._refuse_with is not None:
            raise self._refuse_with
        if self._pending_bytes + request.size_bytes > MAX_PENDING_BYTES:
            numbers = {"pending_bytes": self._pending_bytes, "max_pending_bytes": MAX_PENDING_BYTES}
            raise QueueFull("too many bytes wait for this model", retry_after_s=0.5, numbers=numbers)

    def _submit(self, opened: list[Request]) -> None:
        """Queue `opened` and empty it."""
        if not opened or self.engine_loop is None:
            return
        waiting, opened[:] = list(opened), []
        refusals = self.engine_loop.submit([request.works for request in waiting])
        for request, refusal in zip(waiting, refusals, strict=True):
            if refusal is not None:
                self._close(request)
                self._fail(request, _error(refusal))

    def _cancel(self, request: Request) -> None:
        """Parts that still wait are dropped; parts on the device run to their end and are settled."""
        if self.engine_loop is None:
            return
        if request.stream is not None:
            self._end_stream(request.stream, ClientClosedRequest("cancelled by the client"))
        dropped = set(self.engine_loop.cancel([work.id for work in request.works]))
        for work in request.works:
            if work.id in dropped:
                self._settle(work.payload, ClientClosedRequest("cancelled by the client"), self._queued_rows)

    def _amend(self, request: Request | None, amend: Amend) -> None:
        """Raises `FrameError` for terms that are none; those of a request that is over are ignored."""
        terms = requests.terms(amend, self._clock())
        if request is not None and self.engine_loop is not None:
            self.engine_loop.amend([(request.works, terms)])

    # ------------------------------------------------------------ out

    def deliver(self, settled: Settled) -> None:
        """Outcomes from the engine thread; called on the event loop."""
        self._outbox.empty()
        queued_rows = self._queued_rows
        for run in settled.runs:
            for work, outcome, share_us in zip(run.batch.works, run.outcomes, run.shares_us, strict=True):
                if outcome is None:
                    continue
                part: Part = work.payload
                request = part.request
                request.ran(work, run, share_us)
                if type(outcome) is EngineOutput and len(request.outcomes) == 1 and request.stream is None:
                    request.outcomes[0] = outcome
                    self._close(request)
                    self._answer(request, queued_rows)
                else:
                    self._settle(part, outcome, queued_rows)
        for work, refusal in settled.expired:
            self._settle(work.payload, _error(refusal), queued_rows)

    def _settle(self, part: Part, outcome: Outcome, queued_rows: int) -> None:
        request = part.request
        if not request.settle(part.index, outcome):
            return
        if request.stream is not None and request.stream.is_held_up:
            request.stream.is_done = True  # its last chunk finishes it
        else:
            self._finish(request, queued_rows)

    def _finish(self, request: Request, queued_rows: int) -> None:
        self._close(request)
        error = request.failure()
        if error is not None:
            self._fail(request, error)
        else:
            self._answer(request, queued_rows)

    def _answer(self, request: Request, queued_rows: int) -> None:
        try:
            header, bodies = requests.result(request, self._clock(), queued_rows)
            frame = encode(Kind.RESULT, request.id, header, *bodies)
        except DataPlaneError as error:
            self._fail(request, error)
        except FrameError as error:
            self._fail(request, EngineFailed(f"the answer does not fit a frame: {error}"))
        else:
            request.link.send(frame)
            if request.traceparent and self.spans is not None:
                self.spans.settled(request.traceparent, header.stages)
            request.release()

    def _fail(self, request: Request, error: DataPlaneError) -> None:
        measured = requests.stages(request, self._clock())
        if request.traceparent and self.spans is not None and measured is not None:
            self.spans.settled(request.traceparent, measured, error.code)
        header = requests.failure(error, measured, self._queued_rows)
        request.link.send(encode(Kind.ERROR, request.id, header))
        request.release()

    def _close(self, request: Request) -> None:
        if request.link.requests.pop(request.id, None) is not None:
            self._pending_bytes -= request.size_bytes

    # ------------------------------------------------------------ streams

    def _send_chunk(self, stream: Stream, output: EngineOutput) -> None:
        """A chunk from the engine's thread, in order."""
        request, index = stream.request, stream.sent + len(stream.kept)
        if stream.ended is not None:
            return
        try:
            header, bodies = requests.chunk(index, output)
            frame = encode(Kind.CHUNK, request.id, header, *bodies)
        except DataPlaneError as error:
            self._end_stream(stream, error)
        except FrameError as error:
            self._end_stream(stream, EngineFailed(f"a chunk does not fit a frame: {error}"))
        else:
            stream.keep(frame, sum(head.size_bytes for head in header.tensors))
            self._flush_stream(stream)

    def _grant(self, request: Request | None, chunks: int) -> None:
        """Raises `FrameError` for a credit that is none; one for a request that is over is ignored."""
        if chunks < 1:
            raise FrameError(f"a credit of {chunks} chunks")
        if request is None or request.stream is None:
            return
        request.stream.grant(chunks)
        self._flush_stream(request.stream)
        if self.engine_loop is not None:
            self.engine_loop.wake()

    def _flush_stream(self, stream: Stream) -> None:
        while stream.has_next:
            stream.request.link.send(stream.next_frame(self._clock()))
        stream.check_kept()
        if stream.is_done and not stream.is_held_up:
            self._finish(stream.request, self._queued_rows)
            self._stream_finished.set()

    def _end_stream(self, stream: Stream, error: DataPlaneError) -> None:
        """Nothing more goes out; the engine is told at its next step."""
        stream.end(error)
        if stream.is_done:
            self._finish(stream.request, self._queued_rows)
            self._stream_finished.set()
        elif self.engine_loop is not None:
            self.engine_loop.wake()

    @property
    def _queued_rows(self) -> int:
        return self.engine_loop.queued_rows if self.engine_loop else 0


def _error(refusal: Refusal) -> DataPlaneError:
    return from_code(
        refusal.code, refusal.message, numbers=refusal.numbers, retry_after_s=refusal.retry_after_s or None
    )
