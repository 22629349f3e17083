"""The cases that are measured, and how one round of each is played."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from benchmarks import model, processes
from benchmarks.loadgen import Load, Outcome, Plan
from benchmarks.peers.mosec import Peer
from benchmarks.stack import Stack

GENERATOR_CORE = 0
TARGET_MS = 50.0
OPEN_RATES = (100.0, 183.0)
INTERACTIVE_RATE = 10.0
BULK_OUTSTANDING = 128
CONNECTIONS = 64


@dataclass(frozen=True, slots=True)
class Server:
    """Whom a load is sent to."""

    name: str
    port: int
    path: str
    body: str
    pids: dict[str, int]
    headers_by_tenant: dict[str, dict[str, str]]

    def load(self, name: str, tenant: str, **fields: object) -> Load:
        return Load(
            name=name,
            port=self.port,
            path=self.path,
            body=self.body,
            headers=self.headers_by_tenant.get(tenant, {}),
            **fields,  # type: ignore[arg-type]
        )


def tidegate(stack: Stack) -> Server:
    return Server(
        name="tidegate",
        port=stack.port,
        path="/v1/embeddings",
        body=f'{{"model": "{model.NAME}", "input": %s}}',
        pids=stack.pids,
        headers_by_tenant={tenant: stack.authorization(tenant) for tenant in stack.keys},
    )


def mosec(peer: Peer) -> Server:
    return Server("mosec", peer.port, peer.path, peer.body, {"mosec": peer.pid}, {})


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of load. `texts` names the lengths of the sentences of the bulk of it."""

    name: str
    texts: str = "short"
    rate: float = 0.0
    is_contended: bool = False
    duration_s: float = 6.0

    def loads(self, server: Server) -> list[Load]:
        if self.is_contended:
            urgent = server.load(
                "interactive", "chat", mode="open", rate=self.rate, connections=256, target_ms=TARGET_MS
            )
            bulk = server.load(
                "bulk", "archive", mode="closed", connections=BULK_OUTSTANDING, texts=self.texts
            )
            return [urgent, bulk]
        if self.rate:
            return [
                server.load("open", "main", mode="open", rate=self.rate, connections=768, texts=self.texts)
            ]
        return [server.load("closed", "main", mode="closed", connections=CONNECTIONS, texts=self.texts)]


CASES = (
    Case("closed64 short"),
    Case("closed64 mixed", texts="mixed", duration_s=8.0),
    *(Case(f"open {rate:g}/s", rate=rate) for rate in OPEN_RATES),
    Case("contended short", rate=INTERACTIVE_RATE, is_contended=True, duration_s=12.0),
    Case("contended mixed", texts="mixed", rate=INTERACTIVE_RATE, is_contended=True, duration_s=12.0),
    Case("contended 40/s", rate=40.0, is_contended=True, duration_s=8.0),
)


def play(case: Case, server: Server, seed: int, *, scale: float = 1.0) -> Outcome:
    """One round in a process of its own. Raises `CalledProcessError` when nothing answers there."""
    plan = Plan(
        loads=case.loads(server),
        duration_s=case.duration_s * scale,
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
