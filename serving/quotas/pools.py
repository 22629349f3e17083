"""What tenants share of a model, who has how much of it for certain, and what a request takes of both. Pure.

A pool has a limit, as a rate or of requests in flight. Who has a guarantee always gets it: it is taken from the pool
whatever is left there. Everything else is borrowed, by whoever asks first, as far as the pool has it. So nothing lies
idle that somebody wants, and nobody who borrows keeps anybody from what is theirs: the pool is then overdrawn, and
lends nothing until that is made up, by the time that passes or by the requests that end.

Guarantees together are at most the pool; so a rate is overdrawn by a second's worth at most, and what is in flight
by the guarantees, for as long as the borrowers' requests run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple
from zoneinfo import ZoneInfo

from serving.contract import ModelEntry, QuotaEntry, QuotaResource, QuotaWindow
from serving.quotas.holding import Holding
from serving.quotas.limits import Amounts, Limit

ZONE = ZoneInfo("UTC")
"""Of no meaning: a pool has no calendar."""
OWNER = "pool"
"""In an account's name, in place of a tenant's id."""


class Part(NamedTuple):
    """The pool that a request takes from, and what is its tenant's own there."""

    pool: Holding
    own: Holding | None


Pairs = list[tuple[Holding, int]]
"""A holding and an amount; below zero it is taken whatever is left (see `account.Batch`)."""


def in_hand(parts: Iterable[Part], needed: Amounts) -> Pairs | None:
    """What a request may take without asking; None where it has to ask. Nobody borrows who might have their own.

    A right alone is not taken in silence: where it overdraws the pool, who lends of that has to hear of it at once.
    """
    pairs: Pairs = []
    for pool, own in parts:
        amount = needed[pool.limit.column]
        if pool.slack < amount or (own is not None and own.slack < amount):
            return None
        if own is not None:
            pairs.append((own, amount))
        pairs.append((pool, amount))
    return pairs


def to_ask(parts: Iterable[Part], needed: Amounts) -> Pairs:
    """What it asks for first: its tenant's own."""
    pairs: Pairs = []
    for pool, own in parts:
        amount = needed[pool.limit.column]
        if own is None:
            pairs.append((pool, amount))
        else:
            pairs += (own, amount), (pool, -amount)
    return pairs


def borrowed(pairs: Pairs, place: int) -> Pairs | None:
    """What to ask for when the pair at `place` was refused: the pool's, where that was a guarantee."""
    following = place + 1
    if following >= len(pairs) or pairs[following][1] >= 0:
        return None
    pool, amount = pairs[following]
    return [*pairs[:place], (pool, -amount), *pairs[following + 1 :]]


def of_model(model: ModelEntry) -> Iterator[Limit]:
    """The pools of a model."""
    kinds: tuple[tuple[QuotaResource, QuotaWindow, int | None], ...] = (
        ("requests", "second", model.pool_requests_per_s),
        ("concurrency", "", model.pool_concurrency),
    )
    for resource, window, limit in kinds:
        if limit is not None:
            name = f"{model.id}:{resource}"
            entry = QuotaEntry(
                id=name, tenant_id=OWNER, resource=resource, limit=limit, window=window, model=model.name
            )
            yield Limit(entry, ZONE, "shared-")


def guarantee(entry: QuotaEntry) -> Limit | None:
    """What a quota says is its tenant's own."""
    if entry.guaranteed is None or entry.model is None or entry.key_id is not None:
        return None
    own = QuotaEntry(
        id=f"{entry.id}:guaranteed",
        tenant_id=entry.tenant_id,
        resource=entry.resource,
        limit=entry.guaranteed,
        window=entry.window,
        model=entry.model,
    )
    return Limit(own, ZONE, "guaranteed-")
