"""Puts a gateway together: configuration in, reports and frames out, the application between."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from serving.contract import ConfigChange
from serving.ending import end_tasks
from serving.gateway.addresses import Doorkeeper
from serving.gateway.amendments import Amendments
from serving.gateway.app import GatewayApp
from serving.gateway.auth import Authenticator
from serving.gateway.frames import FramePublisher
from serving.gateway.inference import Inference
from serving.gateway.key_uses import KeyUses
from serving.gateway.metrics import Metrics
from serving.gateway.once import OnceOnly
from serving.gateway.quotas import Quotas
from serving.gateway.replays import ReplayStore
from serving.gateway.routing import Router
from serving.gateway.snapshot import KINDS, Snapshot
from serving.gateway.spans import RequestSpans
from serving.gateway.tokenise import Tokenisers
from serving.gateway.usage import Usage
from serving.quotas.keeper import QuotaKeeper
from serving.quotas.valkey import ValkeyAccounts
from serving.seam import Seam
from serving.seam.follower import ConfigFollower
from serving.seam.outbox import ReportOutbox
from serving.telemetry.tracing import Tracing

log = structlog.get_logger("tidegate.gateway")

USAGE_FLUSH_S = 2.0


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """What distinguishes one gateway process from another."""

    name: str
    """Unique among running gateways: names its reports and frames."""
    state_dir: Path
    """Last-good configuration and undelivered reports live here."""
    key_pepper: bytes
    valkey_url: str | None = None
    poll_interval_s: float = 0.25
    max_body_bytes: int = 16 << 20
    idempotency_bytes: int = 64 << 20
    """Answers kept in Valkey for repetition, all tenants together."""
    quotas_fail_open: bool = True
    """What quotas do while Valkey is away: let this gateway's part of them pass, or nothing."""
    trusted_proxies: tuple[str, ...] = ()
    """Networks whose word about a client's address is taken."""
    count: int = 1
    """Gateways that share the tenants' traffic: each grants its part of the limits."""
    has_hot_routes: bool = True
    """Whether inference is served at protocol level where it can be; else by plain ASGI alone."""


class Gateway:
    """`start()`, serve `app`, `stop()`. Needs a running event loop."""

    def __init__(self, seam: Seam, settings: GatewaySettings, tracing: Tracing | None = None) -> None:
        self._seam = seam
        self.has_hot_routes = settings.has_hot_routes
        self._snapshot = Snapshot()
        self._metrics = Metrics()
        self._tokenisers = Tokenisers()
        self._outbox = ReportOutbox(seam, settings.name, settings.state_dir / "reports.jsonl")
        door = Doorkeeper(settings.trusted_proxies)
        self._key_uses = KeyUses(self._outbox, door)
        self._usage = Usage(self._outbox, settings.state_dir, self._key_uses.seen)
        self._frames = FramePublisher(self._metrics, settings.name, settings.valkey_url)
        self._quotas = Quotas(_keeper(settings), self._snapshot.prices)
        self._router = Router(self._snapshot, self._metrics, self._quotas.keeper.book.may_bind)
        self.inference = Inference(
            Authenticator(self._snapshot, settings.key_pepper, door),
            self._router,
            self._tokenisers,
            self._metrics,
            self._usage,
            self._snapshot.prices,
            self._quotas,
            self._key_uses,
            max_body_bytes=settings.max_body_bytes,
            share=1.0 / settings.count,
            spans=None if tracing is None else RequestSpans(tracing),
        )
        self._amendments = Amendments(self.inference.dispatcher, self._router)
        self.follower = ConfigFollower(
            seam,
            KINDS,
            settings.state_dir / "last-good.json",
            self._on_changes,
            poll_interval_s=settings.poll_interval_s,
        )
        self._replays = ReplayStore(settings.valkey_url, settings.idempotency_bytes)
        self._once = OnceOnly(self._replays)
        self.app = GatewayApp(self._snapshot, self._router, self.inference, self._once, self._metrics)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Load what is known (seam or last-good file) and go to work; ready or not, it never fails."""
        await self._outbox.start(self._usage.recover())
        self._usage.start()
        await self.follower.start()
        self._run(self._note_loaded())
        self._run(self.inference.dispatcher.watch_deadlines())
        self._run(self._frames.run())
        self._run(self._flush_usage())

    def drain(self) -> None:
        """Take nothing new; `/readyz` says so. What is in flight goes on."""
        self.inference.is_draining = True

    async def stop(self) -> None:
        """Deliver what was counted, then let go of everything."""
        self.drain()
        self._amendments.stop()
        self.inference.dispatcher.close()
        self._usage.stop()
        self._key_uses.flush(time.time())
        await end_tasks(self._tasks)
        await self._outbox.stop()
        self._usage.close()
        await self.follower.stop()
        await self._frames.close()
        self._once.close()
        await self._quotas.keeper.close()
        await self._replays.close()
        self._tokenisers.close()
        await self._seam.close()

    async def _note_loaded(self) -> None:
        while not await self.follower.wait_loaded(3600):
            pass
        self._snapshot.is_loaded = True

    async def _flush_usage(self) -> None:
        while True:
            await asyncio.sleep(USAGE_FLUSH_S)
            self._usage.flush()
            self._key_uses.flush(time.time())

    def _on_changes(self, changes: list[ConfigChange]) -> None:
        touched = self._snapshot.apply(changes)
        if touched - {"key"}:
            self._router.forget()
        if touched & {"quota", "tenant", "model"}:
            self._quotas.update(self._snapshot)
        if touched & {"profile", "binding"}:
            self._amendments.start()
        if "deployment" in touched:
            deployments = self._snapshot.deployments.values()
            self.inference.dispatcher.pool.update(spec for entry in deployments for spec in entry.replicas)
        if touched & {"deployment", "version"}:
            self._load_tokenisers()

    def _load_tokenisers(self) -> None:
        deployments = self._snapshot.deployments.values()
        wanted = {spec.version_id for entry in deployments for spec in entry.replicas}
        self._tokenisers.update(
            version for version in self._snapshot.versions.values() if version.id in wanted
        )

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(work))


def _keeper(settings: GatewaySettings) -> QuotaKeeper:
    store = ValkeyAccounts(settings.valkey_url) if settings.valkey_url else None
    # A name of this very start: what its predecessor held under the same name is not ours.
    process = f"{settings.name}:{secrets.token_hex(4)}"
    share = 1.0 / settings.count
    return QuotaKeeper(store, process, fails_open=settings.quotas_fail_open, share=share)
