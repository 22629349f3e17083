"""What quotas cost a gateway per request, with a Valkey on the same machine: `python -m benchmarks.quotas [CORE]`.

The steps are those of `serving.gateway.quotas`, called as the hot routes call them: bind, take or ask, settle, the
header lines, release. Sixty-four requests come in each turn of the event loop, as they do under load; for the latency
one alone. CPU is that of this process, so Valkey's own is left out, as is everything of a request but its quotas.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from zoneinfo import ZoneInfo

import msgspec
import uvloop
from redis.asyncio import Redis

from benchmarks import machine
from console.embedded.services import EmbeddedServices
from serving.contract import QuotaEntry
from serving.errors import DataPlaneError
from serving.quotas import fields
from serving.quotas.book import Binding
from serving.quotas.holding import Reservation
from serving.quotas.keeper import QuotaKeeper
from serving.quotas.limits import Amounts
from serving.quotas.valkey import WHOLE, ValkeyAccounts

AT_ONCE, TURNS, ALONE = 64, 400, 1000
PLENTY = 1 << 40
NEEDED = Amounts(1, 12, 3000, 40)
USED = Amounts(1, 12, 2100, 28)

LEASED = (("requests", "second"), ("tokens", "minute"), ("concurrency", ""))
BUDGETS = (("requests", "day"), ("device_us", "month"), ("cost_micro", "month"))


class QuotaCost(msgspec.Struct, kw_only=True):
    """Microseconds of the gateway's CPU per request, and of waiting for one request alone."""

    limits: str
    cpu_us: float
    headers_us: float
    """Of `cpu_us`: writing the header lines."""
    p50_us: float
    p99_us: float


class _Gateway:
    """A keeper and one tenant with some limits, far away."""

    def __init__(self, url: str, kinds: tuple[tuple[str, str], ...]) -> None:
        self.keeper = QuotaKeeper(ValkeyAccounts(url), f"benchmark:{kinds}", fails_open=False, share=1.0)
        entries = [
            QuotaEntry(
                id=f"quo_{name}_{window}", tenant_id="tnt_a", resource=name, window=window, limit=limit
            )  # type: ignore[arg-type]
            for name, window in kinds
            for limit in [1 << 29 if window in ("second", "minute", "") else PLENTY]
        ]
        self.keeper.book.update(entries, lambda tenant_id: ZoneInfo("UTC").key)
        self.asked = 0

    def request(self, on_end: Callable[[], None]) -> None:
        """Everything of one request, answered at once."""
        binding = self.keeper.book.binding("tnt_a", "key_a", "minilm")
        reservation = self.keeper.take(binding, NEEDED)
        if reservation is not None:
            self._answer(binding, reservation, on_end)
            return
        self.asked += 1
        self.keeper.ask(binding, NEEDED, lambda known: self._known(binding, known, on_end))

    def _known(
        self, binding: Binding, known: Reservation | DataPlaneError, on_end: Callable[[], None]
    ) -> None:
        assert isinstance(known, Reservation), known
        self._answer(binding, known, on_end)

    def _answer(self, binding: Binding, reservation: Reservation, on_end: Callable[[], None]) -> None:
        reservation.settle(USED)
        fields.lines(binding, time.time())
        reservation.release()
        on_end()

    async def turn(self, count: int) -> None:
        """So many requests in one turn of the event loop; returns when all are answered."""
        left, done = count, asyncio.get_running_loop().create_future()

        def ended() -> None:
            nonlocal left
            left -= 1
            if not left:
                done.set_result(None)

        for _ in range(count):
            self.request(ended)
        await done


async def _measure(url: str, name: str, kinds: tuple[tuple[str, str], ...]) -> QuotaCost:
    gateway = _Gateway(url, kinds)
    for _ in range(20):
        await gateway.turn(AT_ONCE)
    began = time.process_time()
    for _ in range(TURNS):
        await gateway.turn(AT_ONCE)
    cpu_us = (time.process_time() - began) / (TURNS * AT_ONCE) * 1e6
    waits = []
    for _ in range(ALONE):
        began_one = time.perf_counter()
        await gateway.turn(1)
        waits.append((time.perf_counter() - began_one) * 1e6)
    headers_us = _headers_us(gateway)
    await gateway.keeper.close()
    quantiles = statistics.quantiles(waits, n=100)
    return QuotaCost(
        limits=name,
        cpu_us=round(cpu_us, 2),
        headers_us=round(headers_us, 2),
        p50_us=round(statistics.median(waits), 1),
        p99_us=round(quantiles[98], 1),
    )


def _headers_us(gateway: _Gateway) -> float:
    binding = gateway.keeper.book.binding("tnt_a", "key_a", "minilm")
    began = time.process_time()
    for _ in range(10_000):
        fields.lines(binding, time.time())
    return (time.process_time() - began) / 10_000 * 1e6


async def measure(url: str) -> list[QuotaCost]:
    """The store at `url` is used under `tidegate:quota:` and called whole."""
    client = Redis.from_url(url)
    await client.set(WHOLE, "1")
    await client.aclose()
    return [
        await _measure(url, "one leased limit", LEASED[:1]),
        await _measure(url, "three leased limits", LEASED),
        await _measure(url, "one budget", BUDGETS[:1]),
        await _measure(url, "three budgets", BUDGETS),
    ]


def main() -> None:
    if len(sys.argv) > 1:
        machine.pin(int(sys.argv[1]))
    with tempfile.TemporaryDirectory(prefix="tgq", dir="/tmp") as directory:
        services = EmbeddedServices(Path(directory), durable=False)
        services.start()
        try:
            costs = uvloop.run(measure(services.urls()["VALKEY_URL"]))
        finally:
            services.stop()
    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(costs)) + b"\n")


if __name__ == "__main__":
    main()
