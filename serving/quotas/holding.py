"""What this process holds of one limit, and what a request took of it. Pure arithmetic: the hot path ends here."""

from __future__ import annotations

from serving.quotas.account import BUDGET, INSIDE, RATE, Ask, View
from serving.quotas.limits import Amounts, Limit

LEAST_EXTRA = 8
"""Slack to ask for, in requests of the size at hand."""
IDLE_TICKS = 20
"""Slack that nobody took for so many ticks goes back."""


class Holding:
    """Units of one limit: `promised` to running requests, `slack` to admit with, `spent` for good."""

    __slots__ = (
        "_idle_ticks",
        "acked",
        "is_dirty",
        "limit",
        "overdrawn",
        "promised",
        "slack",
        "spent",
        "taken",
        "view",
        "view_ms",
        "view_promised",
        "view_spent",
    )

    def __init__(self, limit: Limit) -> None:
        self.limit = limit
        self.promised = 0
        self.slack = 0
        self.spent = 0
        self.overdrawn = 0
        """Of the promises, what may lie beyond the limit: it goes back when it ends, nobody else is let in with it."""
        self.acked = 0
        """Spent, as far as the store confirmed it."""
        self.taken = 0
        """Admitted since slack was last asked for."""
        self.view_promised = 0
        """What of the promises in the newest view is ours."""
        self.is_dirty = False
        """Whether the store should hear of it at the next tick."""
        self.view: View | None = None
        self.view_ms = 0
        """Unix milliseconds of the view."""
        self.view_spent = 0
        """What was spent when the view was made, and is in it."""
        self._idle_ticks = 0

    # ------------------------------------------------------------ requests

    def may_take(self, amount: int) -> bool:
        """Whether that much is in hand."""
        return self.slack >= amount or not self.limit.is_hard

    def take(self, amount: int) -> None:
        """Of slack, after `may_take`."""
        limit = self.limit
        if limit.is_hard:
            self.slack -= amount
        self.taken += amount
        if limit.kind == RATE:
            self.spent += amount
        else:
            self.promised += amount
        self.is_dirty = True

    def receive(self, amount: int, *, is_owed: bool = False) -> None:
        """What the store gave for a request, with the newest view; `is_owed` whatever was left."""
        if is_owed:
            self.overdrawn += amount
        self.taken += amount
        self.view_promised += amount
        self.is_dirty = True
        if self.limit.kind == RATE:
            self.spent += amount
            self.view_spent += amount
        else:
            self.promised += amount

    def settle(self, promised: int, used: int) -> None:
        """A request ends: what it did not use stays in hand where slack may, and goes back where not."""
        kind = self.limit.kind
        if kind == RATE:
            if used > promised:
                self.spent += used - promised
        else:
            self.promised -= promised
            used = 0 if kind == INSIDE else used
            self.spent += used
            rest = promised - used if promised > used else 0
            if self.overdrawn:
                owed = min(self.overdrawn, promised)
                self.overdrawn, rest = self.overdrawn - owed, max(0, rest - owed)
            if self.limit.is_leased and not self.is_recalled:
                self.slack += rest
        self.is_dirty = True

    @property
    def is_recalled(self) -> bool:
        return self.view is not None and self.view.is_recalled

    # ------------------------------------------------------------ store

    def ask(self, now: float, wanted: int = 0) -> Ask:
        """What to say to the store, and of what a request wants that there is not enough in hand for.

        `now` in Unix seconds. Slack goes back whenever something is wanted: it must not stand in its own way.
        """
        limit, span = self.limit, self.limit.span_at(now)
        extra = 0
        if limit.is_leased and wanted:
            extra = max(LEAST_EXTRA * wanted, 2 * self.taken)
        if wanted or self.is_recalled:
            self.slack = 0
        self.taken, self.is_dirty = 0, False
        return Ask(
            limit.kind,
            limit.value,
            limit.size,
            limit.per_ms,
            span.start_s,
            span.end_s * 1000,
            limit.is_hard,
            self.acked,
            self.spent,
            self.promised + self.slack,
            self.slack,
            extra,
        )

    def heard(self, ask: Ask, view: View, now: float) -> bool:
        """The store's answer. `now` in Unix seconds. True where slack is wanted back: it is out of reach, and goes
        with the next message.
        """
        self.acked = self.view_spent = ask.spent
        self.view_promised = ask.held - ask.slack
        self.slack += view.extra
        self.view, self.view_ms = view, int(now * 1000)
        is_wanted = view.is_recalled and self.slack > 0
        if is_wanted:
            self.drop_slack()
        return is_wanted

    def was_lost(self) -> None:
        """The store forgot everything. What was spent until now will be known to it from the ledger."""
        self.acked = self.spent
        self.slack = 0

    def drop_slack(self) -> None:
        """The store may have given it to others by now: it goes back with the next message."""
        if self.slack:
            self.slack, self.is_dirty = 0, True

    def missed(self) -> None:
        """The store did not answer: it is told again."""
        self.is_dirty = True

    def tick(self) -> bool:
        """Whether the store should be asked, because something changed or slack might be recalled."""
        if not self.slack:
            return self.is_dirty
        self._idle_ticks = 0 if self.taken else self._idle_ticks + 1
        if self._idle_ticks >= IDLE_TICKS:
            self.slack, self._idle_ticks, self.is_dirty = 0, 0, True
        return True

    # ------------------------------------------------------------ what people are told

    def used(self, now: float) -> int:
        """Of a budget: used in the window of `now`, as far as it is known here."""
        view, start_s = self.view, self.limit.span_at(now).start_s
        fresh = self.spent - self.view_spent
        return fresh + (view.used if view is not None and view.window >= start_s else 0)

    def reserved(self) -> int:
        """Promised to running requests, of this and other processes."""
        if self.view is None:
            return self.promised
        return max(0, self.view.held - self.view.slack - self.view_promised) + self.promised

    def remaining(self, now: float) -> int:
        """What the next request may take, about."""
        return self.standing(now)[0]

    def reset_s(self, now: float, amount: int = 1) -> float:
        """Until there is more: the end of a budget's window, or when a rate has `amount` again."""
        if self.limit.kind == BUDGET:
            return max(0.0, self.limit.span_at(now).end_s - now)
        if self.limit.kind == INSIDE or not self.limit.per_ms:
            return 1.0
        return max(0.0, (amount - self.remaining(now)) / self.limit.per_ms / 1000)

    def standing(self, now: float) -> tuple[int, float]:
        """`remaining`, and the seconds until all of it is there again: what headers say."""
        limit, kind = self.limit, self.limit.kind
        if kind == RATE:
            left, per_ms = self._level(now), limit.per_ms
            return left, (limit.size - left) / per_ms / 1000 if per_ms else 1.0
        if kind == BUDGET:
            left, reset_s = limit.value - self.used(now), limit.span.end_s - now
        else:
            left, reset_s = limit.value - self.reserved(), 1.0
        return left if left > 0 else 0, reset_s

    def _level(self, now: float) -> int:
        """What a rate has in it."""
        limit, view = self.limit, self.view
        if view is None:
            return limit.size
        ms = now * 1000 - self.view_ms
        there = view.level + view.slack - self.spent + self.view_spent
        if ms > 0:
            there += int(ms * limit.per_ms)
        return 0 if there < 0 else there if there < limit.size else limit.size

    def is_used_up(self, now: float) -> bool:
        """Whether a budget is known to have nothing left in this window: nobody need be asked."""
        if self.limit.kind != BUDGET or self.view is None or not self.limit.is_hard:
            return False
        return self.used(now) >= self.limit.value


class Reservation:
    """What one request took of each limit that binds it. `settle`, then `release`, which may also come alone.

    A try that nobody waits for any more may still cost: from `keep` to `drop` what was not used stays reserved.
    """

    __slots__ = ("_held", "_is_over", "_kept", "is_settled")

    def __init__(self, held: tuple[tuple[Holding, int], ...]) -> None:
        self._held = held
        self._kept = 0
        self._is_over = False
        self.is_settled = False

    def settle(self, used: Amounts) -> None:
        """The request was answered: budgets and rates learn what it really took."""
        self.is_settled = True
        if self._kept:
            self.add(used)
            return
        for holding, promised in self._held:
            if holding.limit.kind != INSIDE:
                holding.settle(promised, used[holding.limit.column])

    def release(self) -> None:
        """The request is over: without `settle` before, it used nothing but its place."""
        if self._kept:
            self._leave()
            return
        held, self._held, self._is_over = self._held, (), True
        for holding, promised in held:
            if holding.limit.kind == INSIDE or not self.is_settled:
                holding.settle(promised, 0)

    # ------------------------------------------------------------ more than one try

    def add(self, used: Amounts) -> bool:
        """A try used this of the budgets, whatever becomes of the request; False where nothing is held any more."""
        self._held = tuple([(holding, _charged(holding, held, used)) for holding, held in self._held])
        return bool(self._held)

    def missing(self, needed: Amounts) -> list[tuple[Holding, int]]:
        """What another try may take of budgets beyond what is left."""
        return [
            (holding, needed[holding.limit.column] - held)
            for holding, held in self._held
            if holding.limit.kind == BUDGET and needed[holding.limit.column] > held
        ]

    def absorb(self, other: Reservation) -> None:
        """What was reserved besides becomes this one's, unless its request ended meanwhile."""
        if self._is_over:
            other.release()
            return
        more = dict(other._held)
        other._held = ()
        self._held = tuple([(holding, held + more.get(holding, 0)) for holding, held in self._held])

    def keep(self) -> None:
        self._kept += 1

    def drop(self) -> None:
        """What the try used was added, or is known to be nothing."""
        self._kept -= 1
        if self._is_over and not self._kept:
            held, self._held = self._held, ()
            for holding, promised in held:
                holding.settle(promised, 0)

    def holdings(self) -> list[Holding]:
        return [holding for holding, _ in self._held]

    def _leave(self) -> None:
        """The place is free; what budgets are held goes back with the last `drop`."""
        self._is_over = True
        for holding, promised in self._held:
            if holding.limit.kind == INSIDE:
                holding.settle(promised, 0)
        self._held = tuple([pair for pair in self._held if pair[0].limit.kind == BUDGET])


def _charged(holding: Holding, held: int, used: Amounts) -> int:
    """What is left of `held`."""
    if holding.limit.kind == INSIDE:
        return held
    amount = used[holding.limit.column]
    if holding.limit.kind == RATE:
        holding.settle(held, amount)
        return max(held, amount)
    part = min(held, amount)
    holding.settle(part, amount)
    return held - part
