"""What tests of `Idempotency-Key` share: an engine that counts, gateways that remember."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx

from serving.errors import EngineFailed
from serving.worker.engines.contract import Engine, EngineInput, Run
from serving.worker.engines.echo import EchoEngine
from serving.worker.testing import EchoWorker
from tests.serving.gateway.harness import Harness, gateway


class CountingEngine(EchoEngine):
    """Counts what it ran, and fails what begins with a negative number."""

    def __init__(self) -> None:
        super().__init__()
        self.ran = 0

    def run(self, inputs: Sequence[EngineInput]) -> Run:
        self.ran += len(inputs)
        outcomes = yield from super().run(inputs)
        return [
            EngineFailed("a negative number") if item.tensors["x"].array.flat[0] < 0 else outcome
            for item, outcome in zip(inputs, outcomes, strict=True)
        ]


@contextlib.asynccontextmanager
async def serving(engine: Engine, **settings: Any) -> AsyncIterator[Harness]:
    """A gateway that remembers answers in the session's Valkey, before one worker."""
    async with gateway(is_started=False) as harness:
        harness.settings = dataclasses.replace(
            harness.settings, **({"valkey_url": os.environ["VALKEY_URL"]} | settings)
        )
        harness.publish_model()
        harness.publish_replicas(harness.address())
        await harness.start()
        try:
            async with EchoWorker(harness.address(), engine, replica_id="rep_0"):
                await harness.until_ready()
                yield harness
        finally:
            await harness.stop()


@contextlib.asynccontextmanager
async def second_gateway(first: Harness) -> AsyncIterator[Harness]:
    """Another gateway of the same installation: same tenant, same worker, an API key of its own."""
    async with gateway(is_started=False) as harness:
        harness.settings = dataclasses.replace(harness.settings, valkey_url=os.environ["VALKEY_URL"])
        harness.publish_model()
        harness.publish_replicas(first.address())
        await harness.start()
        try:
            await harness.until_ready()
            yield harness
        finally:
            await harness.stop()


Counting = tuple[Harness, CountingEngine]


def new_key() -> str:
    return f'"{os.urandom(8).hex()}"'


async def send(harness: Harness, key: str, body: Any = None, **headers: str) -> httpx.Response:
    return await harness.infer(body, idempotency_key=key, **headers)
