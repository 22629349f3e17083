"""What a request is told that a limit refuses: which one, and how it stands."""

from __future__ import annotations

import math
from typing import Any

from serving.errors import (
    ConcurrencyExceeded,
    DataPlaneError,
    QuotaExhausted,
    QuotaReserved,
    QuotaUnavailable,
    RateLimited,
)
from serving.quotas.account import BUDGET, RATE
from serving.quotas.holding import Holding

RETRY_S = 1.0


def refused(holding: Holding, amount: int, now: float) -> DataPlaneError:
    """`now` in Unix seconds."""
    limit = holding.limit
    numbers = _numbers(holding, now)
    reset_s = holding.reset_s(now, amount)
    if limit.kind == BUDGET:
        numbers["reset_s"] = math.ceil(reset_s)
        numbers["needed"] = limit.shown(amount)
        return _of_budget(numbers, reset_s, has_room=holding.used(now) + amount <= limit.value)
    if limit.kind == RATE:
        numbers |= {"burst": limit.shown(limit.size), "reset_s": round(reset_s, 3)}
        message = (
            f"the rate {limit.name} is at its limit of {numbers['limit']:g} (burst {numbers['burst']:g})"
        )
        return RateLimited(message, retry_after_s=reset_s, numbers=numbers)
    message = "the limit {quota} of {limit:g} is reached: {reserved:g} requests are in flight"
    return ConcurrencyExceeded(message.format(**numbers), retry_after_s=RETRY_S, numbers=numbers)


def _of_budget(numbers: dict[str, Any], reset_s: float, *, has_room: bool) -> DataPlaneError:
    """With room beside what is used, what stands in the way is reserved, and comes back as far as it is not taken."""
    message = (
        "the budget {quota} has {used:g} of {limit:g} used and {reserved:g} reserved;"
        " this request may take {needed:g}"
    ).format(**numbers)
    if has_room:
        return QuotaReserved(message, retry_after_s=min(RETRY_S, reset_s), numbers=numbers)
    return QuotaExhausted(message, retry_after_s=reset_s, numbers=numbers)


def unavailable() -> QuotaUnavailable:
    return QuotaUnavailable(
        "Valkey, which keeps the accounts of quotas, is away, and this installation then refuses what they limit",
        retry_after_s=RETRY_S,
    )


def _numbers(holding: Holding, now: float) -> dict[str, Any]:
    limit = holding.limit
    is_budget = limit.kind == BUDGET
    return {
        "quota": limit.name,
        "quota_id": limit.entry.id,
        "limit": limit.shown(limit.value),
        "used": limit.shown(holding.used(now)) if is_budget else 0,
        "reserved": limit.shown(holding.reserved()) if limit.kind != RATE else 0,
    }
