"""The cases that are measured, and how one round of each is played."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec

from benchmarks import model, processes
from benchmarks.loadgen import Outcome, Plan
from benchmarks.peers.peer import Running
from benchmarks.senders import Load
from benchmarks.stack import WEIGHTS, Stack

GENERATOR_CORE = 0
TARGET_MS = 50.0
OPEN_RATES = (100.0, 183.0)
INTERACTIVE_RATE = 10.0
BULK_OUTSTANDING = 128
CONNECTIONS = 64
GREEDY_RATE, CALM_RATE = 450.0, 15.0

Kind = Literal["one tenant", "contended", "shares", "overload"]


@dataclass(frozen=True, slots=True)
class Server:
    """Whom a load is sent to."""

    name: str
    port: int
    path: str
    body: str
    pids: dict[str, int]
    headers_by_tenant: dict[str, dict[str, str]]

    @property
    def is_ours(self) -> bool:
        return self.name.startswith("tidegate")


def tidegate(stack: Stack, name: str = "tidegate") -> Server:
    return Server(
        name=name,
        port=stack.port,
        path="/v1/embeddings",
        body=f'{{"model": "{model.NAME}", "input": %s}}',
        pids=stack.pids,
        headers_by_tenant={tenant: stack.authorization(tenant) for tenant in stack.keys},
    )


def peer(running: Running) -> Server:
    name = running.peer.name
    return Server(name, running.port, running.peer.path, running.peer.body, {name: running.pid}, {})


@dataclass(frozen=True, slots=True)
class Stream:
    """What one tenant sends: open loop with a `rate`, otherwise closed with `connections` outstanding."""

    load: str
    tenant: str
    rate: float = 0.0
    connections: int = CONNECTIONS
    texts: str = "short"
    target_ms: float | None = None

    def to(self, server: Server) -> Load:
        return Load(
            name=self.load,
            mode="open" if self.rate else "closed",
            port=server.port,
            path=server.path,
            body=server.body,
            headers=server.headers_by_tenant.get(self.tenant, {}),
            connections=self.connections,
            rate=self.rate,
            texts=self.texts,
            target_ms=self.target_ms,
        )


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    kind: Kind
    streams: tuple[Stream, ...]
    duration_s: float
    peers_s: float = 0.0
    """How long the same is played to each peer; 0 where peers have nothing to compare."""

    @property
    def texts(self) -> str:
        """Which lengths most of the work has: names the raw limit it is compared to."""
        return self.streams[-1].texts

    def seconds(self, server: Server) -> float:
        return self.duration_s if server.is_ours else self.peers_s


def _closed(texts: str, duration_s: float) -> Case:
    return Case(
        f"closed64 {texts}", "one tenant", (Stream("closed", "main", texts=texts),), duration_s, duration_s
    )


def _open(rate: float) -> Case:
    stream = Stream("open", "main", rate=rate, connections=768)
    return Case(f"open {rate:g}/s", "one tenant", (stream,), 5.0, 5.0)


def _contended(name: str, rate: float, texts: str, duration_s: float, peers_s: float) -> Case:
    urgent = Stream("interactive", "chat", rate=rate, connections=256, target_ms=TARGET_MS)
    bulk = Stream("bulk", "archive", connections=BULK_OUTSTANDING, texts=texts)
    return Case(f"contended {name}", "contended", (urgent, bulk), duration_s, peers_s)


def _interactive(tenant: str, rate: float) -> Stream:
    return Stream(tenant, tenant, rate=rate, connections=512, target_ms=TARGET_MS)


CASES = (
    _closed("short", 4.5),
    _closed("mixed", 5.0),
    *map(_open, OPEN_RATES),
    _contended("short", INTERACTIVE_RATE, "short", 12.0, 5.0),
    _contended("mixed", INTERACTIVE_RATE, "mixed", 12.0, 8.0),
    _contended("40/s", 40.0, "short", 8.0, 0.0),
    Case("shares 1:2:4", "shares", tuple(Stream(name, name) for name in WEIGHTS), 6.0),
    Case(
        f"overload {GREEDY_RATE:g}/s",
        "overload",
        (
            _interactive("calm", CALM_RATE),
            _interactive("mild", CALM_RATE),
            _interactive("greedy", GREEDY_RATE),
        ),
        8.0,
    ),
)
BY_NAME = {case.name: case for case in CASES}
BF16_CASES = frozenset({"closed64 short", "closed64 mixed"})
"""What is played to the bf16 variant too."""


def play(case: Case, server: Server, seed: int, *, scale: float = 1.0) -> Outcome:
    """One round in a process of its own. Raises `CalledProcessError` when nothing answers there."""
    plan = Plan(
        loads=[stream.to(server) for stream in case.streams],
        duration_s=case.seconds(server) * scale,
        core=GENERATOR_CORE,
        pids=server.pids,
        seed=seed,
    )
    output = processes.finished(
        processes.python("-m", "benchmarks.loadgen"),
        stdin=msgspec.json.encode(plan),
        timeout_s=plan.duration_s + 120,
    )
    return msgspec.json.decode(output, type=Outcome)
