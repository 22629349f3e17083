"""What tenants share of a model: a guarantee always holds, nothing wanted lies idle, what was lent comes back."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass, field
from zoneinfo import ZoneInfo

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from redis import Redis

from serving.contract import ModelEntry
from serving.quotas import account, pools
from serving.quotas.account import INSIDE, Account, Batch, Verdicts
from serving.quotas.book import Book
from serving.quotas.holding import Reservation
from serving.quotas.limits import Amounts
from serving.quotas.pools import Pairs
from serving.quotas.valkey import WHOLE, ValkeyAccounts
from tests.serving.quotas import rows

EXAMPLES = int(os.environ.get("TIDEGATE_TEST_EXAMPLES", "100"))
NEEDED = Amounts(1, 0, 0, 0)
PROCESSES = ("p", "q")
GUARANTEED = {"tnt_a": 4, "tnt_b": 2, "tnt_c": 0}
POOL = 7
LEASE_MS = 3_600_000


def a_book(model_id: str, resource: str, limit: int, guaranteed: dict[str, int]) -> Book:
    """Of a process: what each tenant has for certain of one pool."""
    field_of = {"concurrency": "pool_concurrency", "requests": "pool_requests_per_s"}
    model = ModelEntry(id=model_id, name="minilm", **{field_of[resource]: limit})  # type: ignore[arg-type]
    window = "" if resource == "concurrency" else "second"
    entries = [
        rows.entry(
            resource,  # type: ignore[arg-type]
            window,  # type: ignore[arg-type]
            1 << 20,
            id=f"quo_{model_id}_{tenant_id}",
            tenant_id=tenant_id,
            model="minilm",
            observe_only=True,
            guaranteed=amount,
        )
        for tenant_id, amount in guaranteed.items()
        if amount
    ]
    book = Book()
    book.update(entries, lambda tenant_id: ZoneInfo("UTC").key, models=[model])
    return book


@dataclass
class Gateway:
    """A process as the keeper is one, asking when it is told to."""

    name: str
    book: Book
    accounts: dict[str, Account]
    running: list[tuple[str, Reservation]] = field(default_factory=list)

    def carry_out(self, names: list[str], batch: Batch, now: float) -> Verdicts:
        return account.take(self.accounts, names, batch, int(now * 1000))

    def request(self, tenant_id: str, now: float) -> int:
        """0 where it is let in, which holds until it ends; else as the store answered."""
        parts = self.book.binding(tenant_id, "key_a", "minilm").parts
        pairs = pools.in_hand(parts, NEEDED)
        if pairs is not None:
            for holding, amount in pairs:
                holding.take(amount)
            return self._begin(tenant_id, pairs)
        asked: Pairs | None = pools.to_ask(parts, NEEDED)
        result = 0
        while asked is not None:
            pairs, result = asked, self.tell(now, asked)
            if result == 0:
                for holding, amount in pairs:
                    holding.receive(abs(amount), is_owed=amount < 0)
                return self._begin(tenant_id, pairs)
            asked = pools.borrowed(pairs, result - 1) if result > 0 else None
        return result

    def _begin(self, tenant_id: str, pairs: Pairs) -> int:
        self.running.append((tenant_id, Reservation(tuple((h, abs(amount)) for h, amount in pairs))))
        return 0

    def tell(self, now: float, pairs: Pairs | None = None) -> int:
        """One exchange about everything."""
        holdings = list(self.book)
        wanted = {holding: abs(amount) for holding, amount in pairs or ()}
        asks = [holding.ask(now, wanted.get(holding, 0)) for holding in holdings]
        requests = [] if pairs is None else [[(holdings.index(h), amount) for h, amount in pairs]]
        names = [holding.limit.store_name for holding in holdings]
        verdicts = self.carry_out(names, Batch(self.name, LEASE_MS, asks, requests), now)
        for holding, ask, view in zip(holdings, asks, verdicts.views, strict=True):
            holding.heard(ask, view, now)
        return verdicts.results[0] if pairs is not None else 0

    def inside(self, tenant_id: str) -> int:
        return sum(tenant_id == whose for whose, _ in self.running)


class InFlight(RuleBasedStateMachine):
    """Requests of three tenants, two of which have a guarantee, come to two gateways and end in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.accounts: dict[str, Account] = {}
        self.model_id = f"mdl_{secrets.token_hex(6)}"
        self.now = 1_767_225_600.0
        self.gateways = {name: self.gateway(name) for name in PROCESSES}

    def gateway(self, name: str) -> Gateway:
        return Gateway(name, a_book(self.model_id, "concurrency", POOL, GUARANTEED), self.accounts)

    @rule(name=st.sampled_from(PROCESSES), tenant_id=st.sampled_from(sorted(GUARANTEED)))
    def come(self, name: str, tenant_id: str) -> None:
        """Whatever others know of what ended."""
        self.gateways[name].request(tenant_id, self.now)

    @rule(name=st.sampled_from(PROCESSES), which=st.integers(0, 99), is_answered=st.booleans())
    def end(self, name: str, which: int, is_answered: bool) -> None:
        running = self.gateways[name].running
        if running:
            _, reservation = running.pop(which % len(running))
            if is_answered:
                reservation.settle(NEEDED)
            reservation.release()

    @rule(name=st.sampled_from(PROCESSES))
    def tick(self, name: str) -> None:
        for holding in self.gateways[name].book:
            holding.tick()
        self.gateways[name].tell(self.now)

    @rule(name=st.sampled_from(PROCESSES), tenant_id=st.sampled_from(sorted(GUARANTEED)))
    def come_where_all_is_known(self, name: str, tenant_id: str) -> None:
        """When everybody said what they hold, a request is let in exactly where there is room or a right."""
        self.now += 1.0  # nothing is recalled any more
        self.tell_all()
        has_right = self.own(tenant_id) < GUARANTEED[tenant_id]
        has_room = self.of_all() < POOL
        result = self.gateways[name].request(tenant_id, self.now)
        for _ in range(3):
            if result >= 0:
                break
            self.tell_all()  # others hold slack: they hear of it, and give it back
            self.tell_all()
            result = self.gateways[name].request(tenant_id, self.now)
        assert (result == 0) == (has_right or has_room), (result, has_right, has_room)

    @invariant()
    def lent_is_what_nobody_has_a_right_to(self) -> None:
        """Beyond the pool are only those with a guarantee, each within theirs."""
        assert self.of_all() - sum(self.own(tenant_id) for tenant_id in GUARANTEED) <= POOL

    def inside(self, tenant_id: str) -> int:
        return sum(gateway.inside(tenant_id) for gateway in self.gateways.values())

    def own(self, tenant_id: str) -> int:
        """Of those inside, the ones that took of the tenant's guarantee."""
        parts = [g.book.binding(tenant_id, "key_a", "minilm").parts[0] for g in self.gateways.values()]
        own = sum(part.own.promised for part in parts if part.own is not None)
        assert own <= self.inside(tenant_id)
        return own

    def of_all(self) -> int:
        return sum(len(gateway.running) for gateway in self.gateways.values())

    def tell_all(self) -> None:
        for gateway in self.gateways.values():
            gateway.tell(self.now)


TestInFlight = InFlight.TestCase
TestInFlight.settings = settings(max_examples=EXAMPLES, stateful_step_count=40, deadline=None)


def two_gateways() -> tuple[Gateway, Gateway]:
    accounts: dict[str, Account] = {}
    p, q = (
        Gateway(name, a_book("mdl_flight", "concurrency", POOL, GUARANTEED), accounts) for name in PROCESSES
    )
    return p, q


def end_one(gateway: Gateway, tenant_id: str) -> None:
    place = [whose for whose, _ in gateway.running].index(tenant_id)
    gateway.running.pop(place)[1].release()


def test_what_a_gateway_was_told_to_give_back_is_lent_to_nobody() -> None:
    p, q = two_gateways()
    assert p.request("tnt_c", 1000.0) == 0
    end_one(p, "tnt_c")  # a place in hand
    p.tell(1000.0)
    assert [q.request("tnt_c", 1000.0) for _ in range(POOL - 1)] == [0] * (POOL - 1)
    assert q.request("tnt_a", 1000.0) == 0, "who has a right gets it all the same"
    p.tell(1001.0)
    assert p.request("tnt_c", 1001.0) > 0, "nothing is left, and it heard so"


def test_who_has_a_right_in_hand_lets_the_pool_know_of_it_before_it_is_lent_beyond() -> None:
    p, q = two_gateways()
    assert q.request("tnt_a", 1000.0) == 0
    end_one(q, "tnt_a")  # of its guarantee, and a place of the pool, which is lent on
    assert q.request("tnt_c", 1000.0) == p.request("tnt_c", 1000.0) == 0
    end_one(p, "tnt_c")
    p.tell(1000.0)
    assert [q.request("tnt_c", 1000.0) for _ in range(POOL - 2)] == [0] * (POOL - 2)
    assert q.request("tnt_a", 1000.0) == 0
    p.tell(1001.0)
    assert p.request("tnt_c", 1001.0) > 0, "the one place left is who has a right's"


# ---------------------------------------------------------------- rates


@given(flood_s=st.integers(2, 6), guaranteed=st.integers(1, 6), processes=st.integers(1, 2))
@settings(max_examples=30, deadline=None)
def test_a_rate_is_lent_while_it_is_idle_and_handed_back_within_a_second(
    flood_s: int, guaranteed: int, processes: int
) -> None:
    limit, accounts = 10, dict[str, Account]()
    gateways = [
        Gateway(f"p{index}", a_book("mdl_rate", "requests", limit, {"tnt_a": guaranteed}), accounts)
        for index in range(processes)
    ]

    def second(begin: float, *, comes_back: bool) -> int:
        """How much a borrower gets that never stops asking; who has the guarantee asks at its rate or not at all."""
        lent_now, owed = 0, 0.0
        for step in range(20):
            now = begin + step * 0.05
            for gateway in gateways:
                gateway.tell(now)
            owed += guaranteed / 20 if comes_back else 0.0
            while owed >= 0.999:
                owed -= 1.0
                assert gateways[step % processes].request("tnt_a", now) == 0, "a guarantee did not hold"
            lent_now += sum(gateway.request("tnt_c", now) == 0 for _ in range(2) for gateway in gateways)
        return lent_now

    lent = [second(1000.0 + at, comes_back=False) for at in range(flood_s)]
    assert limit * flood_s <= sum(lent) + limit // 2 <= limit * (flood_s + 2)
    second(2000.0, comes_back=True)
    shared = [second(2001.0 + at, comes_back=True) for at in range(3)]
    assert sum(shared) <= 3 * (limit - guaranteed) + 2


async def test_valkey_lends_and_takes_back_as_the_pure_accounts_do() -> None:
    Redis.from_url(os.environ["VALKEY_URL"]).set(WHOLE, "1")
    store, book = (
        ValkeyAccounts(os.environ["VALKEY_URL"]),
        a_book(f"mdl_{secrets.token_hex(6)}", "concurrency", 3, {"tnt_a": 2}),
    )
    ((pool, own),) = book.binding("tnt_a", "key_a", "minilm").parts
    assert own is not None and pool.limit.kind == INSIDE

    async def ask(*requests: Pairs) -> Verdicts:
        holdings = [pool, own]
        asks = [holding.ask(1000.0) for holding in holdings]
        indices = [[(holdings.index(holding), amount) for holding, amount in pairs] for pairs in requests]
        names = [holding.limit.store_name for holding in holdings]
        return await store.take(names, Batch(secrets.token_hex(4), LEASE_MS, asks, indices))

    right: Pairs = [(own, 1), (pool, -1)]
    borrowed = pools.borrowed(right, 0)
    assert borrowed == [(pool, 1)]
    assert (await ask(*[borrowed] * 4)).results == [0, 0, 0, 1], "all of it is lent, and no more"
    verdicts = await ask(right, right, right, borrowed)
    assert verdicts.results == [0, 0, 1, 1], "who has a right gets it all the same"
    assert verdicts.views[0].held == 5 and verdicts.views[0].is_recalled
    await store.close()
