"""The account of one limit: what was used of it, and who holds how much. Pure; `accounts.lua` does the same in Valkey.

A gateway's process *holds* units: those promised to its running requests, and some of slack to admit more without
asking. It states what it holds, and how much it spent since it began, as absolute numbers: a message that is lost, or
arrives twice, changes nothing. Used and held together never pass the limit, whatever dies: what was held by a process
that is not heard of any more is free again when its lease ends.

Three kinds. A *budget* counts what was used since its window began. What is *inside* is only held. A *rate* is a token
bucket: what is taken comes back with time, and slack in somebody's hand keeps it from filling up.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

BUDGET: Final = 0
INSIDE: Final = 1
RATE: Final = 2
Kind = Literal[0, 1, 2]

FAR_SHARE = 8
"""A process may hold an eighth of what is free as slack; where that is less than one unit, none."""
RECALL_MS = 300
"""For so long nobody is given slack after somebody had to wait for it."""
KNOWN_MS = 600_000
"""What a process was counted for is remembered so long after its lease: it may come back."""


class Ask(msgspec.Struct, array_like=True):
    """What a process says of one limit and wants to know."""

    kind: Kind
    limit: int
    size: int
    """Of a rate: what it gives at once."""
    per_ms: float
    """Of a rate: what comes back in a millisecond."""
    window: int
    """Of a budget: Unix seconds of its start."""
    ends_ms: int
    """When the account may be forgotten."""
    is_hard: bool
    acked: int
    """Spent, as far as an earlier answer confirmed."""
    spent: int
    """Spent since the process began."""
    held: int
    slack: int
    """The part of `held` that no request needs."""
    extra: int
    """Slack it would like to have besides."""


class Batch(msgspec.Struct, array_like=True):
    process: str
    lease_ms: int
    asks: list[Ask]
    requests: list[list[tuple[int, int]]]
    """Each: pairs of an ask's index and an amount. All of a request's amounts are given, or none. One below zero is
    given whatever is left: somebody has a right to it, and those who borrow wait until it is there again."""
    turn: int = 0
    """Goes up with every message of the process: what arrives after a newer one says nothing."""


class View(msgspec.Struct, array_like=True):
    """One limit as it stands after a batch."""

    used: int
    held: int
    """By all processes."""
    slack: int
    """The part of it that no request needs."""
    level: int
    """Of a rate: what may be taken now."""
    extra: int
    """Slack given."""
    is_recalled: bool
    """Somebody waits: give slack back."""
    window: int


class Verdicts(msgspec.Struct, array_like=True):
    is_whole: bool
    """False while the accounts were lost and are not rebuilt: then nothing was looked at."""
    views: list[View]
    results: list[int]
    """Per request: 0 given; n: the nth amount was refused; -n: it would be there if others gave back slack."""


class Holding(msgspec.Struct, array_like=True):
    """What one process has."""

    held: int
    slack: int
    counted: int
    until_ms: int
    turn: int = 0


class Account(msgspec.Struct):
    w: int
    """Start of the window; 0 before anybody named one that has begun."""
    u: int
    """Used in it."""
    l: float  # noqa: E741 - names are short because every account is stored with them
    """Level of a rate."""
    t: int
    """When the level was right, milliseconds."""
    r: int
    """Until when slack is recalled, milliseconds."""
    p: dict[str, Holding]

    @property
    def held(self) -> int:
        return sum(holding.held for holding in self.p.values())

    @property
    def slack(self) -> int:
        return sum(holding.slack for holding in self.p.values())

    def turn_of(self, process: str) -> int:
        """The newest message that the process was heard with."""
        known = self.p.get(process)
        return 0 if known is None else known.turn


def take(accounts: dict[str, Account], names: list[str], batch: Batch, now_ms: int) -> Verdicts:
    """Carry out a batch on `accounts`, where `names` has a name per ask.

    One that was overtaken by a newer one of its process changes nothing, and has no views.
    """
    known = [accounts[name] for name in names if name in accounts]
    if any(batch.turn < account.turn_of(batch.process) for account in known):
        return Verdicts(True, [], [])
    pairs = list(zip(names, batch.asks, strict=True))
    rows = [_stated(accounts.get(name), ask, batch, now_ms) for name, ask in pairs]
    results = [_decide(rows, batch, request, now_ms) for request in batch.requests]
    _call_back(rows, batch, now_ms)
    extras = [
        _extra(account, ask, batch.process, now_ms) for account, ask in zip(rows, batch.asks, strict=True)
    ]
    accounts.update(zip(names, rows, strict=True))
    views = [
        View(row.u, row.held, row.slack, int(row.l // 1), extra, row.r > now_ms, row.w)
        for row, extra in zip(rows, extras, strict=True)
    ]
    return Verdicts(True, views, results)


def opened(ask: Ask, now_ms: int, used: int = 0) -> Account:
    return Account(w=0, u=used, l=ask.size, t=now_ms, r=0, p={})


def _stated(account: Account | None, ask: Ask, batch: Batch, now_ms: int) -> Account:
    """The account with what the process says of itself."""
    account = opened(ask, now_ms) if account is None else account
    account.p = _living(account.p, now_ms)
    _turn_window(account, ask, now_ms)
    mine = account.p.get(batch.process)
    counted, held = (ask.acked, 0) if mine is None else (mine.counted, mine.held)
    spent = max(0, ask.spent - counted)
    account.u += spent
    until_ms = now_ms + batch.lease_ms
    account.p[batch.process] = Holding(ask.held, ask.slack, ask.spent, until_ms, batch.turn)
    if ask.kind == RATE:
        back = max(0, now_ms - account.t) * ask.per_ms + held - ask.held - spent
        account.l = max(-ask.size, min(ask.size - account.held, account.l + back))
        account.t = now_ms
    return account


def _living(holdings: dict[str, Holding], now_ms: int) -> dict[str, Holding]:
    """Without those long gone; who was not heard of for a lease holds nothing."""
    for holding in holdings.values():
        if holding.until_ms <= now_ms:
            holding.held = holding.slack = 0
    return {name: h for name, h in holdings.items() if h.until_ms > now_ms - KNOWN_MS}


def _turn_window(account: Account, ask: Ask, now_ms: int) -> None:
    """A window that has not begun is that of a clock ahead of the store's: what it says counts in the one of now."""
    if account.w < ask.window and ask.window * 1000 <= now_ms:
        if account.w > 0:
            account.u = 0
        account.w = ask.window


def _free(account: Account, ask: Ask) -> float:
    if ask.kind == RATE:
        return account.l
    return ask.limit - account.held - (account.u if ask.kind == BUDGET else 0)


def _decide(rows: list[Account], batch: Batch, request: list[tuple[int, int]], now_ms: int) -> int:
    waits = 0
    for place, (index, amount) in enumerate(request, start=1):
        account, ask = rows[index], batch.asks[index]
        free = _free(account, ask)
        if amount < 0 or free >= amount or not ask.is_hard:
            continue
        if free + account.slack - account.p[batch.process].slack < amount:
            return place
        waits = waits or place
    if waits:
        rows[request[waits - 1][0]].r = now_ms + RECALL_MS
        return -waits
    for index, amount in request:
        _give(rows[index], batch.asks[index], batch.process, abs(amount))
    return 0


def _call_back(rows: list[Account], batch: Batch, now_ms: int) -> None:
    """Of what more is held than there is, nobody keeps slack."""
    for account, ask in zip(rows, batch.asks, strict=True):
        if ask.is_hard and ask.kind != BUDGET and _free(account, ask) < 0:
            account.r = now_ms + RECALL_MS


def _give(account: Account, ask: Ask, process: str, amount: int) -> None:
    account.p[process].held += amount
    if ask.kind == RATE:
        account.l -= amount


def _extra(account: Account, ask: Ask, process: str, now_ms: int) -> int:
    if ask.extra <= 0 or account.r > now_ms:
        return 0
    extra = max(0, min(ask.extra, int(_free(account, ask) // FAR_SHARE)))
    _give(account, ask, process, extra)
    account.p[process].slack += extra
    return extra
