"""Never one over, the last unit given out, nothing left reserved: whatever happens, here and in Valkey."""

from __future__ import annotations

import asyncio
import os

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from redis import Redis

from serving.quotas.account import RATE, Batch, Verdicts
from serving.quotas.keeper import StoreAway
from serving.quotas.valkey import WHOLE, ValkeyAccounts
from tests.serving.quotas.machine import LEASE_MS, Gateways

EXAMPLES = int(os.environ.get("TIDEGATE_TEST_EXAMPLES", "100"))


class InTime(Gateways):
    """Time passes: leases of the dead end, and the ledger tells what they had used."""

    @precondition(lambda self: self.accounts)
    @rule(seconds=st.floats(0.0, 4.0))
    def wait(self, seconds: float) -> None:
        self.tell_all()  # the living renew
        self.now += seconds
        self.tell_all()

    @precondition(lambda self: self.accounts)
    @rule()
    def outlive_the_dead(self) -> None:
        for _ in range(3):
            self.now += LEASE_MS / 2000
            self.tell_all()
        for index, limit in enumerate(self.limits):
            found = self.accounts[limit.store_name]
            if limit.kind != RATE:
                found.u = max(found.u, self.used[index])
                held = sum(h.held for h in found.p.values() if h.until_ms > self.now * 1000)
                assert held == sum(
                    p.holdings[index].promised + p.holdings[index].slack for p in self.alive.values()
                )


class InValkey(Gateways):
    """Every batch is carried out by the script as well, with the same verdicts."""

    def __init__(self) -> None:
        super().__init__()
        Redis.from_url(os.environ["VALKEY_URL"]).set(WHOLE, "1")
        self.loop = asyncio.new_event_loop()
        self.store = ValkeyAccounts(os.environ["VALKEY_URL"])

    def teardown(self) -> None:
        self.loop.run_until_complete(self.store.close())
        self.loop.close()

    def carry_out(self, names: list[str], batch: Batch) -> Verdicts:
        lasting = Batch(batch.process, 3_600_000, batch.asks, batch.requests, batch.turn)
        here = super().carry_out(names, lasting)
        try:
            there = self.loop.run_until_complete(self.store.take(names, lasting))
        except StoreAway:  # a newer one came first
            assert here.views == []
            return here
        for mine, theirs in zip(here.views, there.views, strict=True):
            mine.is_recalled = theirs.is_recalled  # by Valkey's clock
        assert there == here
        return here


TestInTime = InTime.TestCase
TestInTime.settings = settings(max_examples=EXAMPLES, stateful_step_count=40, deadline=None)
TestInValkey = InValkey.TestCase
TestInValkey.settings = settings(
    max_examples=max(5, EXAMPLES // 5),
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
