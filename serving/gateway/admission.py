"""May this request enter now? Pure: the clock is an argument, the answer is None or a refusal with numbers.

Rates follow GCRA, the generic cell rate algorithm of ITU-T I.371: one float per tenant, no refill loop.
"""

from __future__ import annotations

from serving.contract import TenantEntry
from serving.scheduling.work import Refusal

_BUSY_RETRY_S = 0.1


class TenantGate:
    """What one gateway remembers of one tenant: requests inside, and when the rate is next in balance."""

    __slots__ = (
        "_balanced_at",
        "_burst",
        "_interval_s",
        "_leeway_s",
        "_limit",
        "_rate",
        "_share",
        "_tenant",
        "in_flight",
    )

    def __init__(self) -> None:
        self.in_flight = 0
        self._balanced_at = 0.0
        self._tenant: TenantEntry | None = None
        """Whose limits were worked out last, and for which share."""
        self._share = 0.0
        self._limit = 0
        self._rate: float | None = None
        self._burst = 0
        self._interval_s = self._leeway_s = 0.0
        """Between two requests at that rate, and how early one may come: what the burst allows."""

    def enter(self, tenant: TenantEntry, now: float, share: float = 1.0) -> Refusal | None:
        """Count a request in, or say why not. Every None is owed one `leave()`.

        `share` is this gateway's part of the tenant's limits when several gateways split the traffic.
        """
        if tenant is not self._tenant or share != self._share:
            self._learn(tenant, share)
        if self.in_flight >= self._limit:
            return _too_many(self.in_flight, self._limit)
        rate = self._rate
        if rate is not None:
            if rate <= 0:
                return _too_fast(rate, 0, 60.0)
            balanced_at = self._balanced_at if self._balanced_at > now else now
            early_s = balanced_at - now - self._leeway_s
            if early_s > 1e-9:
                return _too_fast(rate, self._burst, early_s)
            self._balanced_at = balanced_at + self._interval_s
        self.in_flight += 1
        return None

    def leave(self) -> None:
        self.in_flight -= 1

    def _learn(self, tenant: TenantEntry, share: float) -> None:
        """The limits of a share of the tenant's traffic, once for each state of the configuration."""
        self._tenant, self._share = tenant, share
        self._limit = max(1, int(tenant.max_concurrency * share))
        self._rate = None if tenant.requests_per_s is None else tenant.requests_per_s * share
        if self._rate is None or self._rate <= 0:
            return
        self._interval_s = 1.0 / self._rate
        # One second's worth where the tenant has no burst of its own.
        self._burst = tenant.burst if tenant.burst is not None else max(1, int(self._rate))
        self._leeway_s = (self._burst - 1) * self._interval_s


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
