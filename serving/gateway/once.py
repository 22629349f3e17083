"""Carries a request with an `Idempotency-Key` out once, and repeats what came of it.

The outcome is kept before the client is told: whoever saw an answer gets the same one again.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import structlog

from serving.errors import (
    AnswerNotKept,
    DataPlaneError,
    IdempotencyKeyReused,
    IdempotencyUnavailable,
    RequestInFlight,
)
from serving.gateway import idempotency
from serving.gateway.exchange import Exchange
from serving.gateway.idempotency import Kept
from serving.gateway.replays import LEASE_S, RENEW_S, Busy, Lease, Other, ReplayStore

log = structlog.get_logger("tidegate.gateway.once")

SMALL_BYTES = 64 << 10
"""Larger bodies are digested beside the event loop."""
BUSY_RETRY_S = 0.5
FINISH_RETRY_S = 0.25
"""An answer that could not be kept is tried again so often."""


class OnceOnly:
    def __init__(self, store: ReplayStore) -> None:
        self._store = store
        self._tasks: set[asyncio.Task[None]] = set()
        self.counts = dict.fromkeys(
            ("began", "replayed", "in_flight", "reused", "not_kept", "unavailable"), 0
        )

    async def serve(
        self,
        exchange: Exchange,
        tenant_id: str,
        header: bytes,
        body: bytes,
        run: Callable[[], Awaitable[None]],
    ) -> None:
        """Answer by `run`, or with what it answered before.

        Raises `InvalidRequest`, `IdempotencyKeyReused`, `RequestInFlight`, `AnswerNotKept`,
        `IdempotencyUnavailable`, or what `run` raises or raised.
        """
        key = idempotency.parse_key(header)
        known = await self._known(tenant_id, key, await _fingerprint(exchange, body))
        self.counts[_outcome(known)] += 1
        if isinstance(known, Lease):
            await self._run(exchange, known, run)
        elif isinstance(known, Kept):
            await _repeat(exchange, known)
        elif isinstance(known, Busy):
            raise RequestInFlight(
                "a request with this Idempotency-Key is still being worked on", retry_after_s=BUSY_RETRY_S
            )
        else:
            assert isinstance(known, Other)
            raise IdempotencyKeyReused("this Idempotency-Key was used for another request")

    def close(self) -> None:
        """Give up what is still to be kept."""
        for task in self._tasks:
            task.cancel()

    async def _known(self, tenant_id: str, key: bytes, fingerprint: bytes) -> Lease | Busy | Other | Kept:
        try:
            return await self._store.begin(tenant_id, key, fingerprint)
        except IdempotencyUnavailable:
            self.counts["unavailable"] += 1
            raise

    async def _run(self, exchange: Exchange, lease: Lease, run: Callable[[], Awaitable[None]]) -> None:
        async def keep(lines: bytes, body: bytes) -> None:
            await self._finish(lease, idempotency.keep_answer(exchange.request_id, lines, body))

        exchange.keep = keep
        async with self._renewing(lease):
            try:
                await run()
            except DataPlaneError as error:
                failure = idempotency.keep_failure(exchange.request_id, error)
                await (self._release(lease) if failure is None else self._finish(lease, failure))
                raise

    @contextlib.asynccontextmanager
    async def _renewing(self, lease: Lease) -> AsyncIterator[None]:
        task = asyncio.get_running_loop().create_task(self._renew(lease))
        try:
            yield
        finally:
            task.cancel()

    async def _renew(self, lease: Lease) -> None:
        while True:
            await asyncio.sleep(RENEW_S)
            with contextlib.suppress(IdempotencyUnavailable):
                await self._store.renew(lease)

    async def _finish(self, lease: Lease, kept: Kept) -> None:
        """The request ran, so its client is answered whether or not the answer can be kept now."""
        try:
            await self._store.finish(lease, kept)
        except IdempotencyUnavailable:
            task = asyncio.get_running_loop().create_task(self._finish_later(lease, kept))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _finish_later(self, lease: Lease, kept: Kept) -> None:
        """As long as the lease blocks the key: afterwards a repetition may have begun."""
        give_up = time.monotonic() + LEASE_S
        while time.monotonic() < give_up:
            await asyncio.sleep(FINISH_RETRY_S)
            with contextlib.suppress(IdempotencyUnavailable):
                await self._store.finish(lease, kept)
                return

    async def _release(self, lease: Lease) -> None:
        with contextlib.suppress(IdempotencyUnavailable):
            await self._store.release(lease)  # else the lease ends by itself


def _outcome(known: Lease | Busy | Other | Kept) -> str:
    if isinstance(known, Kept):
        return "replayed" if known.lines or known.code else "not_kept"
    if isinstance(known, Lease):
        return "began"
    return "in_flight" if isinstance(known, Busy) else "reused"


async def _fingerprint(exchange: Exchange, body: bytes) -> bytes:
    if len(body) <= SMALL_BYTES:
        return idempotency.fingerprint(exchange.path, exchange.headers, body)
    return await asyncio.to_thread(idempotency.fingerprint, exchange.path, exchange.headers, body)


async def _repeat(exchange: Exchange, kept: Kept) -> None:
    """Raises the failure that is repeated, or `AnswerNotKept`."""
    exchange.is_replayed = True
    failure = idempotency.failure_of(kept)
    if failure is not None:
        raise failure
    if not kept.lines:
        exchange.is_replayed = False
        raise AnswerNotKept(
            "the request with this Idempotency-Key was carried out, but its answer was too large to keep; "
            "send it with a new key to run it again",
            numbers={"request_id": kept.request_id},
        )
    own = b"x-request-id: %b\r\nidempotency-replayed: true\r\nx-tidegate-first-request-id: %b\r\n"
    lines = kept.lines + own % (exchange.request_id.encode(), kept.request_id.encode())
    if exchange.trace is not None:
        lines += b"traceparent: %b\r\n" % exchange.trace.traceparent.encode()
    await exchange.respond_whole(lines, kept.body)
