"""Gateways that take, settle, lose messages and die, in an order that nobody chose: what must hold all the same."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from serving.quotas import account
from serving.quotas.account import BUDGET, RATE, Account, Batch, Verdicts
from serving.quotas.holding import Holding, Reservation
from serving.quotas.limits import Amounts, Limit
from tests.serving.quotas import rows

NAMES = ("p", "q", "r")
LEASE_MS = 5000
BEGIN_S = 1_767_225_600.0 + 36_000
"""Ten in the morning of some day: no test comes to its end."""


def some_limits() -> list[Limit]:
    """Of each kind one, small enough to be reached; the rate gives nothing back."""
    rate = rows.limit("requests", "second", 12)
    rate.per_ms = 0.0
    return [
        rows.limit("requests", "day", 15),
        rows.limit("tokens", "month", 60),
        rows.limit("concurrency", "", 9),
        rate,
        rows.limit("tokens", "hour", 5, observe_only=True),
    ]


@dataclass
class Process:
    """One gateway: what it holds, and the requests it runs."""

    name: str
    holdings: list[Holding]
    running: list[tuple[Reservation, Amounts]] = field(default_factory=list)


class Gateways(RuleBasedStateMachine):
    """Against the pure accounts; a subclass may carry every batch out elsewhere too."""

    def __init__(self) -> None:
        super().__init__()
        self.limits = some_limits()
        self.accounts: dict[str, Account] = {}
        self.now = BEGIN_S
        self.alive: dict[str, Process] = {}
        self.births = 0
        self.used = [0] * len(self.limits)
        """What was really used of each, whoever knows it."""
        self.dead_promises = [0] * len(self.limits)
        self.turn = 0
        self.on_their_way: list[Batch] = []
        """Sent, and given up by whoever sent it."""

    # ------------------------------------------------------------ the store

    def carry_out(self, names: list[str], batch: Batch) -> Verdicts:
        return account.take(self.accounts, names, batch, int(self.now * 1000))

    def tell(
        self,
        process: Process,
        wanted: list[int] | None = None,
        *,
        is_lost: bool = False,
        is_late: bool = False,
    ) -> int:
        """One exchange about all limits; the result of the one request in it, if there is one."""
        amounts = wanted or [0] * len(self.limits)
        asks = [h.ask(self.now, a) for h, a in zip(process.holdings, amounts, strict=True)]
        requests = [] if wanted is None else [list(enumerate(wanted))]
        names = [limit.store_name for limit in self.limits]
        self.turn += 1
        batch = Batch(process.name, LEASE_MS, asks, requests, self.turn)
        if is_late:
            self.on_their_way.append(batch)
            return -99
        verdicts = self.carry_out(names, batch)
        if is_lost:
            return -99
        for holding, ask, view in zip(process.holdings, asks, verdicts.views, strict=True):
            holding.heard(ask, view, self.now)
        if wanted is None:
            return 0
        if verdicts.results == [0]:
            for holding, amount in zip(process.holdings, wanted, strict=True):
                holding.receive(amount)
        return verdicts.results[0]

    def process(self, name: str) -> Process:
        if name not in self.alive:
            self.births += 1
            holdings = [Holding(limit) for limit in self.limits]
            self.alive[name] = Process(f"{name}{self.births}", holdings)
        return self.alive[name]

    def tell_all(self) -> None:
        for process in self.alive.values():
            self.tell(process)

    # ------------------------------------------------------------ what happens

    @rule(name=st.sampled_from(NAMES), tokens=st.integers(1, 8))
    def ask(self, name: str, tokens: int) -> None:
        """A request comes; what it is given by the store or out of slack, it runs with."""
        process, needed = self.process(name), Amounts(1, tokens, 0, 0)
        wanted = [needed[limit.column] for limit in self.limits]
        pairs = list(zip(process.holdings, wanted, strict=True))
        if all(holding.may_take(amount) for holding, amount in pairs):
            for holding, amount in pairs:
                holding.take(amount)
        elif self.tell(process, wanted) != 0:
            return
        self.begin(process, needed, wanted)

    def begin(self, process: Process, needed: Amounts, wanted: list[int]) -> None:
        process.running.append((Reservation(tuple(zip(process.holdings, wanted, strict=True))), needed))
        for index, limit in enumerate(self.limits):
            if limit.kind == RATE:
                self.used[index] += wanted[index]

    @precondition(lambda self: any(process.running for process in self.alive.values()))
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        """A request ends, answered by fewer tokens than it reserved, or not at all."""
        process = data.draw(st.sampled_from([p for p in self.alive.values() if p.running]))
        reservation, needed = process.running.pop(data.draw(st.integers(0, len(process.running) - 1)))
        if data.draw(st.booleans()):
            tokens = data.draw(st.integers(0, needed.tokens))
            used = Amounts(1, tokens, 0, 0)
            reservation.settle(used)
            for index, limit in enumerate(self.limits):
                self.used[index] += used[limit.column] if limit.kind == BUDGET else 0
        reservation.release()

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def tick(self, data: st.DataObject) -> None:
        process = data.draw(st.sampled_from(list(self.alive.values())))
        for holding in process.holdings:
            holding.tick()
        self.tell(process)

    @rule(name=st.sampled_from(NAMES), tokens=st.integers(1, 8), is_late=st.booleans())
    def lose_an_answer(self, name: str, tokens: int, is_late: bool) -> None:
        """The store did it or will, and nobody hears: the request is refused, and told of anew with the next."""
        process, needed = self.process(name), Amounts(1, tokens, 0, 0)
        wanted = [needed[limit.column] for limit in self.limits]
        self.tell(process, wanted, is_lost=True, is_late=is_late)
        for holding in process.holdings:
            holding.missed()

    @precondition(lambda self: self.on_their_way)
    @rule(data=st.data())
    def arrive_late(self, data: st.DataObject) -> None:
        """The store stood still, and reads what it was sent in any order."""
        batch = self.on_their_way.pop(data.draw(st.integers(0, len(self.on_their_way) - 1)))
        self.carry_out([limit.store_name for limit in self.limits], batch)

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        """kill -9: what ran never ends, what was not told is only known to the ledger."""
        name = data.draw(st.sampled_from(list(self.alive)))
        process = self.alive.pop(name)
        for _, needed in process.running:
            for index, limit in enumerate(self.limits):
                if limit.kind != RATE:
                    self.dead_promises[index] += needed[limit.column]

    # ------------------------------------------------------------ what holds

    @invariant()
    def nothing_is_over(self) -> None:
        for index, limit in enumerate(self.limits):
            if limit.is_hard:
                used = 0 if limit.resource == "concurrency" else self.used[index]
                assert used + self.promised(index) <= limit.value, limit.name

    @rule(name=st.sampled_from(NAMES), tokens=st.integers(1, 8))
    def the_last_units_are_given(self, name: str, tokens: int) -> None:
        """When everybody has said what they hold, a request is refused only if there is really no room for it."""
        process, needed = self.process(name), Amounts(1, tokens, 0, 0)
        wanted = [needed[limit.column] for limit in self.limits]
        self.tell_all()
        rooms = [self.room(index) for index in range(len(self.limits))]
        fits = all(
            room >= amount or not limit.is_hard
            for room, amount, limit in zip(rooms, wanted, self.limits, strict=True)
        )
        result = self.tell(process, wanted)
        if result < 0:  # others hold slack: they hear of it at their next tick
            self.tell_all()
            self.tell_all()
            result = self.tell(process, wanted)
        assert (result == 0) == fits, (result, rooms, wanted)
        if result == 0:
            self.begin(process, needed, wanted)

    def promised(self, index: int) -> int:
        if self.limits[index].kind == RATE:
            return 0
        return sum(process.holdings[index].promised for process in self.alive.values())

    def room(self, index: int) -> int:
        """What is left, taking what the dead held as taken until their leases end."""
        limit = self.limits[index]
        living = {process.name for process in self.alive.values()}
        found = self.accounts.get(limit.store_name)
        dead = (
            0
            if found is None
            else sum(
                h.held for name, h in found.p.items() if name not in living and h.until_ms > self.now * 1000
            )
        )
        if limit.kind == RATE:
            return limit.value - self.told_used(index) - dead
        used = 0 if limit.resource == "concurrency" else self.told_used(index)
        return limit.value - used - self.promised(index) - dead

    def told_used(self, index: int) -> int:
        """Used, as far as anybody living can say."""
        found = self.accounts.get(self.limits[index].store_name)
        if self.limits[index].kind == RATE:
            return 0 if found is None else int(self.limits[index].size - found.l) - found.held
        return 0 if found is None else found.u
