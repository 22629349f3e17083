"""A gateway's end of a link, as plain as possible: frames out, frames in, in order."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from typing import Any, Self

import numpy as np

from serving.wire import (
    Amend,
    Chunk,
    Credit,
    Failure,
    FrameReader,
    Hello,
    Infer,
    Kind,
    Result,
    TensorHead,
    decode_chunk,
    decode_failure,
    decode_hello,
    decode_result,
    encode,
)
from serving.worker.engines.contract import Engine
from serving.worker.testing import EchoWorker

TIMEOUT_S = 30.0


class GatewayLink:
    def __init__(self, path: str) -> None:
        self._path = path
        self._ids = itertools.count(1)
        self._frames: asyncio.Queue[tuple[int, int, Any, bytes]] = asyncio.Queue()

    async def __aenter__(self) -> Self:
        self.reader, self.writer = await asyncio.open_unix_connection(self._path)
        self._task = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._task.cancel()
        self.writer.close()

    async def _read(self) -> None:
        frames = FrameReader()
        decoders: dict[Kind, Any] = {
            Kind.HELLO: decode_hello,
            Kind.RESULT: decode_result,
            Kind.ERROR: decode_failure,
            Kind.CHUNK: decode_chunk,
        }
        while data := await self.reader.read(1 << 15):
            frames.get_buffer()[: len(data)] = data
            for frame in frames.frames(len(data)):
                decoder = decoders.get(Kind(frame.kind))
                header = decoder(frame.header) if decoder else None
                self._frames.put_nowait((frame.request_id, frame.kind, header, bytes(frame.body)))
        self._frames.put_nowait((0, 0, None, b""))

    async def next(self) -> tuple[int, int, Any, bytes]:
        """The next frame; kind 0 when the worker closed the link."""
        return await asyncio.wait_for(self._frames.get(), TIMEOUT_S)

    async def hello(self) -> Hello:
        _, kind, header, _ = await self.next()
        assert kind == Kind.HELLO
        return header

    def send(self, kind: Kind, request_id: int, header: Any = None, *body: bytes) -> None:
        self.writer.write(b"".join(encode(kind, request_id, header, *body)))

    def infer(self, array: np.ndarray, *, name: str = "x", datatype: str = "FP32", **fields: Any) -> int:
        """Send one request with a single tensor; returns its id."""
        raw = array.tobytes()
        head = TensorHead(name, datatype, array.shape, len(raw))
        request_id = fields.pop("request_id", None) or next(self._ids)
        self.send(Kind.INFER, request_id, request(tensors=(head,), rows=array.shape[0], **fields), raw)
        return request_id

    async def answer(self, request_id: int | None = None) -> tuple[Result, bytes]:
        got_id, kind, header, body = await self.next()
        assert kind == Kind.RESULT, header
        assert request_id in (None, got_id)
        return header, body

    async def chunk(self, request_id: int | None = None) -> tuple[Chunk, bytes]:
        got_id, kind, header, body = await self.next()
        assert kind == Kind.CHUNK, header
        assert request_id in (None, got_id)
        return header, body

    def grant(self, request_id: int, chunks: int) -> None:
        self.send(Kind.CREDIT, request_id, Credit(chunks))

    async def failure(self, request_id: int | None = None) -> Failure:
        got_id, kind, header, _ = await self.next()
        assert kind == Kind.ERROR, header
        assert request_id in (None, got_id)
        return header

    async def ends(self, *request_ids: int) -> dict[int, Any]:
        """The results and failures of these requests; chunks on the way are passed over."""
        ends: dict[int, Any] = {}
        while ends.keys() < set(request_ids):
            request_id, kind, header, _ = await self.next()
            if kind in (Kind.RESULT, Kind.ERROR):
                ends[request_id] = header
        return ends

    async def round_trip(self) -> None:
        """Everything sent before this was read by the worker."""
        self.send(Kind.PING, 1 << 40)
        assert (await self.next())[1] == Kind.PONG


@contextlib.asynccontextmanager
async def linked(path: str, engine: Engine | None = None) -> AsyncIterator[GatewayLink]:
    """A worker that serves on `path`, and a link to it that has been greeted."""
    async with EchoWorker(f"unix:{path}", engine), GatewayLink(path) as link:
        await link.hello()
        yield link


def row(count: int) -> np.ndarray:
    """One row of so many different numbers."""
    return np.arange(count, dtype=np.float32).reshape(1, count)


def request(**fields: Any) -> Infer:
    defaults: dict[str, Any] = {
        "tenant_id": "tnt_a",
        "sla_class": "standard",
        "budget_us": 5_000_000,
        "rows": 1,
        "row_tokens": (),
        "tensors": (),
    }
    return Infer(**(defaults | fields))


def amend(**fields: Any) -> Amend:
    defaults: dict[str, Any] = {
        "sla_class": "standard",
        "budget_us": 5_000_000,
        "weight": 1.0,
        "max_batch_size": 32,
        "max_wait_us": 0,
        "max_queue": 1024,
        "late_policy": "refuse",
        "target_us": 0,
    }
    return Amend(**(defaults | fields))
