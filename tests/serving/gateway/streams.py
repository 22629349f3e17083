"""Engines that stream as a test wants it, and the reading of what arrives."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Sequence
from typing import Any

import httpx

from serving.contract import DeploymentEntry, ReplicaSpec, TensorSpec
from serving.worker.engines.contract import Emission, EngineInput, EngineOutput, Outcome, Run
from serving.worker.engines.echo import EchoEngine
from serving.worker.testing import EchoWorker
from tests.serving.gateway.harness import Harness

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


def publish_fallback(harness: Harness) -> None:
    """The model `small` on a worker of its own, where `echo` cannot answer."""
    harness.publish_model("small", version_id="mv_small")
    harness.publish_model(fallback_model="small")
    spec = ReplicaSpec(id="rep_s", version_id="mv_small", host="test", address=harness.address(5))
    harness.seam.put("dep_small", DeploymentEntry(id="dep_small", model="small", replicas=(spec,)))


def failed_by_code(harness: Harness) -> dict[str, int]:
    out: dict[str, int] = {}
    for _, counts in harness.gateway._metrics.totals():
        for code, count in counts.failed.items():
            out[code] = out.get(code, 0) + count
    return out


def usage(harness: Harness) -> dict[str, int]:
    used = list(harness.gateway._usage._open.values())
    return {
        name: sum(getattr(one, name) for one in used)
        for name in ("requests", "cancelled", "failed", "device_us")
    }


async def post(
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
