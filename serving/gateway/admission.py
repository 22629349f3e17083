"""May this request enter now? Pure: the clock is an argument, the answer is None or a refusal with numbers.

Rates follow GCRA, the generic cell rate algorithm of ITU-T I.371: one float per tenant, no refill loop.
"""

from __future__ import annotations

from serving.contract import TenantEntry
from serving.scheduling.work import Refusal

_BUSY_RETRY_S = 0.1


class TenantGate:
    """What one gateway remembers of one tenant: requests inside, and when the rate is next in balance."""

    __slots__ = ("_balanced_at", "in_flight")

    def __init__(self) -> None:
        self.in_flight = 0
        self._balanced_at = 0.0

    def enter(self, tenant: TenantEntry, now: float, share: float = 1.0) -> Refusal | None:
        """Count a request in, or say why not. Every None is owed one `leave()`.

        `share` is this gateway's part of the tenant's limits when several gateways split the traffic.
        """
        limit = max(1, int(tenant.max_concurrency * share))
        if self.in_flight >= limit:
            return _too_many(self.in_flight, limit)
        if tenant.requests_per_s is not None:
            refusal = self._take(tenant.requests_per_s * share, tenant.burst, now)
            if refusal is not None:
                return refusal
        self.in_flight += 1
        return None

    def leave(self) -> None:
        self.in_flight -= 1

    def _take(self, rate: float, burst: int | None, now: float) -> Refusal | None:
        """One unit of a rate that allows `burst` at once (default: one second's worth)."""
        if rate <= 0:
            return _too_fast(rate, 0, 60.0)
        size = burst if burst is not None else max(1, int(rate))
        interval_s = 1.0 / rate
        balanced_at = max(self._balanced_at, now)
        early_s = balanced_at - now - (size - 1) * interval_s
        if early_s > 1e-9:
            return _too_fast(rate, size, early_s)
        self._balanced_at = balanced_at + interval_s
        return None


def _too_many(in_flight: int, limit: int) -> Refusal:
    return Refusal(
        "concurrency_exceeded",
        f"{in_flight} requests of this tenant are in flight; the limit is {limit}",
        {"in_flight": in_flight, "limit": limit},
        _BUSY_RETRY_S,
    )


def _too_fast(rate: float, burst: int, retry_after_s: float) -> Refusal:
    return Refusal(
        "rate_limited",
        f"more than {rate:g} requests per second (burst {burst})",
        {"requests_per_s": rate, "burst": burst},
        retry_after_s,
    )
