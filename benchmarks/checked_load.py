"""Clients that know the right answer of every question, keep going whatever dies, and remember what they got."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from benchmarks.texts import sentences

TEXTS = 24
TOLERANCE = 1e-3
"""Between an embedding and the one the quiet platform gave: batches differ in the last digits."""
TIMEOUT_S = 30.0
BACK_OFF_S = 0.02


@dataclass(frozen=True, slots=True)
class Answer:
    """Times of `time.monotonic()`; status 0 is a connection that ended without an answer."""

    sent: float
    done: float
    status: int
    is_right: bool
    device_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Target:
    host: str
    port: int
    model: str
    token: str

    @classmethod
    def of(cls, facts: dict[str, Any], slug: str) -> Target:
        """`facts` is the announcement of a running demo."""
        host, port = facts["gateway"].removeprefix("http://").split(":")
        return cls(host, int(port), facts["model"], facts["tenants"][slug]["api_key"])

    def request(self, text: str) -> bytes:
        body = msgspec.json.encode({"model": self.model, "input": text})
        head = (
            f"POST /v1/embeddings HTTP/1.1\r\nHost: {self.host}:{self.port}\r\n"
            f"Authorization: Bearer {self.token}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


class _Item(msgspec.Struct):
    embedding: list[float]


class _Embeddings(msgspec.Struct):
    data: list[_Item]


class CheckedLoad:
    """`connections` closed loops in a thread of their own, between `__enter__` and `__exit__`.

    `quit_share`: of the requests, how many the client abandons before it can have an answer.
    """

    def __init__(self, target: Target, connections: int = 8, *, quit_share: float = 0.0) -> None:
        self.answers: list[Answer] = []
        self.abandoned = 0
        self._target = target
        self._connections = connections
        self._quit_every = round(1 / quit_share) if quit_share else 0
        self._texts = sentences("short", TEXTS)
        self._requests = [target.request(text) for text in self._texts]
        self._expected: list[np.ndarray] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="load")

    def learn(self) -> int:
        """Ask every question once, of a quiet platform; how many. Raises `RuntimeError` when one fails."""
        self._expected = asyncio.run(self._learn())
        return len(self._expected)

    def __enter__(self) -> CheckedLoad:
        if not self._expected:
            self.learn()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Ends when every request that was sent has its answer."""
        self._is_over.set()
        self._thread.join()

    async def _learn(self) -> list[np.ndarray]:
        reader, writer = await asyncio.open_connection(self._target.host, self._target.port)
        vectors = []
        for request in self._requests:
            writer.write(request)
            status, _, body = await _read(reader)
            if status != 200:
                raise RuntimeError(f"not answered before the drill: {status} {body[:200]!r}")
            vectors.append(_vector(body))
        writer.close()
        return vectors

    async def _run(self) -> None:
        await asyncio.gather(*(self._loop(index) for index in range(self._connections)))

    async def _loop(self, index: int) -> None:
        turn = index
        while not self._is_over.is_set():
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection(self._target.host, self._target.port)
                try:
                    while not self._is_over.is_set():
                        turn += self._connections + 1
                        if not await self._ask(reader, writer, turn):
                            break
                finally:
                    writer.close()
            await asyncio.sleep(BACK_OFF_S)

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, turn: int) -> bool:
        """Whether the connection may go on."""
        which = turn % len(self._requests)
        sent = time.monotonic()
        writer.write(self._requests[which])
        if self._quit_every and turn % self._quit_every == 0:
            await asyncio.sleep(0.001)
            self.abandoned += 1
            writer.transport.abort()
            return False
        try:
            status, device_ms, body = await asyncio.wait_for(_read(reader), TIMEOUT_S)
        except (OSError, EOFError, TimeoutError):
            self.answers.append(Answer(sent, time.monotonic(), 0, False))
            return False
        is_right = status == 200 and _is_close(body, self._expected[which])
        self.answers.append(Answer(sent, time.monotonic(), status, is_right, device_ms))
        if status != 200:
            await asyncio.sleep(BACK_OFF_S)
        return True


async def _read(reader: asyncio.StreamReader) -> tuple[int, float, bytes]:
    """Status, device milliseconds of the receipt, body."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    lines = head.split(b"\r\n")
    headers = dict(line.split(b": ", 1) for line in lines[1:] if b": " in line)
    body = await reader.readexactly(int(headers.get(b"content-length", 0)))
    return int(lines[0][9:12]), float(headers.get(b"x-tidegate-device-ms", 0)), body


def _vector(body: bytes) -> np.ndarray:
    return np.asarray(msgspec.json.decode(body, type=_Embeddings).data[0].embedding, np.float32)


def _is_close(body: bytes, expected: np.ndarray) -> bool:
    try:
        found = _vector(body)
    except (msgspec.DecodeError, IndexError):
        return False
    return found.shape == expected.shape and float(np.abs(found - expected).max()) <= TOLERANCE
