"""Large bodies: how much memory they may take, and how much of the event loop, tenant by tenant."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TypeVar

from serving.errors import QueueFull

T = TypeVar("T")
SHORT_S = 0.001
"""Timers are no finer."""


class Room:
    """Memory for large bodies while their requests live.

    A tenant may hold as much as it leaves free for the others (dynamic thresholds, Choudhury and Hahne
    1998): one alone gets half, n that want all get 1/(n+1) each, and something always stays free.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._of_tenant: dict[str, int] = {}
        self.held_bytes = 0

    @contextlib.contextmanager
    def hold(self, tenant_id: str, size_bytes: int) -> Iterator[None]:
        """Raises `QueueFull`."""
        mine = self._of_tenant.get(tenant_id, 0)
        if mine + size_bytes > self._limit_bytes - self.held_bytes - size_bytes:
            numbers = {"held_bytes": self.held_bytes, "own_bytes": mine, "limit_bytes": self._limit_bytes}
            raise QueueFull("this gateway holds too many large bodies", retry_after_s=0.5, numbers=numbers)
        self._add(tenant_id, size_bytes)
        try:
            yield
        finally:
            self._add(tenant_id, -size_bytes)

    def _add(self, tenant_id: str, size_bytes: int) -> None:
        self.held_bytes += size_bytes
        mine = self._of_tenant.pop(tenant_id, 0) + size_bytes
        if mine:
            self._of_tenant[tenant_id] = mine


class Turn:
    """So many pieces at a time, tenant by tenant.

    Each tenant waits with `each` pieces at most, so that a turn comes after so many others of every tenant.
    """

    def __init__(self, at_once: int = 1, each: int = 1) -> None:
        self._each = each
        self._all = asyncio.Semaphore(at_once)
        self._of_tenant: dict[str, tuple[asyncio.Semaphore, int]] = {}

    @contextlib.asynccontextmanager
    async def of(self, tenant_id: str) -> AsyncIterator[None]:
        """Entered when it is the tenant's turn, which lasts until it is left."""
        async with self._queue(tenant_id), self._all:
            yield

    @contextlib.asynccontextmanager
    async def _queue(self, tenant_id: str) -> AsyncIterator[None]:
        lock, waiting = self._of_tenant.get(tenant_id) or (asyncio.Semaphore(self._each), 0)
        self._of_tenant[tenant_id] = lock, waiting + 1
        try:
            async with lock:
                yield
        finally:
            lock, waiting = self._of_tenant[tenant_id]
            if waiting > 1:
                self._of_tenant[tenant_id] = lock, waiting - 1
            else:
                del self._of_tenant[tenant_id]


class Turns(Turn):
    """Work on large bodies, one piece at a time, never more than half of the event loop's time."""

    async def take(self, tenant_id: str, work: Callable[[], T]) -> T:
        """The result of `work`, called when it is its turn. Raises what `work` raises."""
        async with self.of(tenant_id):
            began = time.perf_counter()
            try:
                return work()
            finally:
                took_s = time.perf_counter() - began
                await asyncio.sleep(took_s if took_s > SHORT_S else 0)
