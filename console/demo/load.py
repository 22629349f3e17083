"""Both tenants at once against the gateway: a paced chat beside an archive that keeps its queue full."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import takewhile

import httpx

from console.demo import texts

MODEL = "all-minilm-l6-v2"
CHAT_PER_S = 10.0


@dataclass(slots=True)
class Answer:
    """One answer as its client saw it: status, wall time, and the receipt's headers."""

    status: int
    latency_ms: float
    headers: dict[str, str]
    detail: str = ""

    def number(self, name: str) -> float:
        return float(self.headers.get(name, "0") or 0)


@dataclass(slots=True)
class Outcome:
    """All answers of one tenant."""

    slug: str
    answers: list[Answer] = field(default_factory=list)

    @property
    def good(self) -> list[Answer]:
        return [answer for answer in self.answers if answer.status == 200]


async def ask(client: httpx.AsyncClient, text: str) -> Answer:
    started = time.perf_counter()
    try:
        response = await client.post("/v1/embeddings", json={"model": MODEL, "input": text})
    except httpx.HTTPError as error:
        return Answer(0, (time.perf_counter() - started) * 1e3, {}, f"{type(error).__name__}: {error}")
    latency_ms = (time.perf_counter() - started) * 1e3
    detail = "" if response.status_code == 200 else response.text[:300]
    return Answer(response.status_code, latency_ms, dict(response.headers), detail)


async def _paced(
    client: httpx.AsyncClient, sentences: Iterator[str], count: int, per_s: float, into: Outcome
) -> None:
    """`count` requests at a steady rate, none waiting for the one before it."""
    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        tasks = []
        for number in range(count):
            await asyncio.sleep(max(0.0, started + number / per_s - time.perf_counter()))
            tasks.append(group.create_task(ask(client, next(sentences))))
    into.answers += [task.result() for task in tasks]


async def _closed(
    client: httpx.AsyncClient,
    sentences: Iterator[str],
    count: int,
    outstanding: int,
    seconds: float,
    into: Outcome,
) -> None:
    """`count` requests with `outstanding` of them under way all the time; none starts after `seconds`."""
    end = time.perf_counter() + seconds
    left = takewhile(lambda _: time.perf_counter() < end, range(count))

    async def one_after_another() -> None:
        for _ in left:
            into.answers.append(await ask(client, next(sentences)))

    async with asyncio.TaskGroup() as group:
        for _ in range(outstanding):
            group.create_task(one_after_another())


async def run(
    gateway: str,
    keys: dict[str, str],
    *,
    chat_requests: int = 80,
    archive_requests: int = 320,
    archive_seconds: float = math.inf,
) -> list[Outcome]:
    """Send from both tenants at the same time; returns their outcomes, chat first.

    The archive stops at whichever comes first, its requests or its seconds.
    """
    chat, archive = Outcome("acme-chat"), Outcome("acme-archive")
    limits = httpx.Limits(max_connections=64, max_keepalive_connections=64)

    def client(slug: str) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            base_url=gateway, headers={"authorization": f"Bearer {keys[slug]}"}, timeout=60, limits=limits
        )

    async with client(chat.slug) as chat_client, client(archive.slug) as archive_client:
        await ask(chat_client, "A first sentence opens the connections.")
        async with asyncio.TaskGroup() as group:
            group.create_task(
                _closed(archive_client, texts.archive(), archive_requests, 32, archive_seconds, archive)
            )
            group.create_task(_paced(chat_client, texts.chat(), chat_requests, CHAT_PER_S, chat))
    return [chat, archive]
