"""The accounts of one gateway alone, while the common ones are away: its part of what was left. Pure."""

from __future__ import annotations

import msgspec

from serving.quotas import account
from serving.quotas.account import BUDGET, INSIDE, Account, Ask, Batch
from serving.quotas.holding import Holding


class LocalAccounts:
    def __init__(self, share: float) -> None:
        """`share` of each limit is this gateway's, the others having as much."""
        self._share = share
        self._accounts: dict[str, Account] = {}
        self._parts: dict[str, int] = {}

    def clear(self) -> None:
        self._accounts.clear()
        self._parts.clear()

    def take(self, holdings: list[Holding], batch: Batch, now: float) -> list[int]:
        """Results as `account.Verdicts` has them. `now` in Unix seconds."""
        now_ms = int(now * 1000)
        pairs = zip(holdings, batch.asks, strict=True)
        asks = [self._part(holding, ask, now, now_ms) for holding, ask in pairs]
        names = [holding.limit.store_name for holding in holdings]
        part = Batch(batch.process, batch.lease_ms, asks, batch.requests)
        return account.take(self._accounts, names, part, now_ms).results

    def _part(self, holding: Holding, ask: Ask, now: float, now_ms: int) -> Ask:
        name = holding.limit.store_name
        known = self._accounts.get(name)
        if known is None or known.w != ask.window:
            used = max(0, holding.used(now) - (ask.spent - ask.acked)) if ask.kind == BUDGET else 0
            self._accounts[name] = account.opened(ask, now_ms, used)
            self._parts[name] = self._limit(holding, ask, now)
        return msgspec.structs.replace(
            ask,
            limit=self._parts[name],
            size=max(1, int(ask.size * self._share)),
            per_ms=ask.per_ms * self._share,
            extra=0,
        )

    def _limit(self, holding: Holding, ask: Ask, now: float) -> int:
        if ask.kind == BUDGET:
            used = holding.used(now)
            return used + int(max(0, ask.limit - used) * self._share)
        if ask.kind == INSIDE:
            return max(1, int(ask.limit * self._share)) if ask.limit else 0
        return ask.limit
