"""Which prices bind, which come, and which are over."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from serving.contract import PriceEntry
from serving.control.pricing.models import Price

CLOCK_SKEW = timedelta(hours=1)
"""A price stays published this long after another took its place: a gateway's clock may be behind."""


def price_entry(row: Price) -> PriceEntry:
    return PriceEntry(
        id=row.pk,
        model=row.model,
        device_class=row.device_class,
        effective_from=row.effective_from.timestamp(),
        micro_per_device_hour=row.micro_per_device_hour,
        micro_per_million_tokens=row.micro_per_million_tokens,
        micro_per_thousand_requests=row.micro_per_thousand_requests,
        is_end=row.is_end,
    )


def binding_at(prices: Iterable[Price], now: datetime) -> dict[tuple[str, str], Price]:
    """Scope → the newest price that has begun, ends included."""
    found: dict[tuple[str, str], Price] = {}
    for price in sorted(prices, key=lambda price: price.effective_from):
        if price.has_begun(now):
            found[price.model, price.device_class] = price
    return found


def needed(prices: Iterable[Price], now: datetime) -> list[Price]:
    """What gateways have to know: what binds, and what will."""
    listed = list(prices)
    bound = {price.pk for price in binding_at(listed, now - CLOCK_SKEW).values()}
    return [price for price in listed if price.pk in bound or not price.has_begun(now - CLOCK_SKEW)]
