"""What a gateway does with slack it was given: never more than the store still knows it has."""

from __future__ import annotations

import asyncio
import time

import pytest

from serving.errors import DataPlaneError, QuotaExhausted, QuotaUnavailable
from serving.quotas import account, keeper
from serving.quotas.account import Account, Batch, Verdicts
from serving.quotas.book import Binding
from serving.quotas.holding import Holding, Reservation
from serving.quotas.keeper import LEASE_MS, QuotaKeeper, StoreAway
from serving.quotas.limits import Amounts
from tests.serving.gateway.harness import until
from tests.serving.quotas import rows

ONE = Amounts(1, 1, 1, 1)


class Store:
    """The accounts, in memory."""

    def __init__(self) -> None:
        self.accounts: dict[str, Account] = {}
        self.is_away = False
        self.is_broken = False
        self.before: list[float] = []
        """Seconds that go by, one after the other, between an answer and when it is heard."""
        self.asked = 0

    async def take(self, names: list[str], batch: Batch) -> Verdicts:
        if self.is_away:
            raise StoreAway("away")
        if self.is_broken:
            raise RuntimeError("a fault of ours")
        self.asked += 1
        return account.take(self.accounts, names, batch, int(time.time() * 1000))

    async def close(self) -> None: ...

    def held(self, holding: Holding) -> int:
        return self.accounts[holding.limit.store_name].held


class Slow(Store):
    """Lets the first question pass and holds the second one back until `goes_on`."""

    def __init__(self) -> None:
        super().__init__()
        self.questions = 0
        self.goes_on = asyncio.Event()

    async def take(self, names: list[str], batch: Batch) -> Verdicts:
        self.questions += 1
        if self.questions == 2:
            await self.goes_on.wait()
        return await super().take(names, batch)


class Clock:
    """Monotonic time that a test moves on, as for a process that stood still."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.behind_s = 0.0
        monkeypatch.setattr(keeper, "monotonic", lambda: time.monotonic() + self.behind_s)

    def stand_still(self) -> None:
        self.behind_s += 2 * LEASE_MS / 1000


def a_keeper(store: Store, *, fails_open: bool = True) -> QuotaKeeper:
    return QuotaKeeper(store, "p", fails_open=fails_open, share=1.0)


def holdings(*limits: tuple[str, str, int]) -> Binding:
    return Binding(Holding(rows.limit(resource, window, most)) for resource, window, most in limits)  # type: ignore[arg-type]


async def refusal(asked: QuotaKeeper, binding: Binding) -> DataPlaneError:
    with pytest.raises(DataPlaneError) as found:
        await asked.reserve(binding, ONE)
    return found.value


async def test_slack_given_beside_a_refusal_goes_back_like_any_other() -> None:
    store = Store()
    asked = a_keeper(store)
    used_up, inside = holdings(("requests", "day", 1), ("concurrency", "", 80))
    other = a_keeper(store)
    other._process = "q"
    (await other.reserve(Binding([used_up]), ONE)).settle(ONE)
    await until(lambda: store.accounts[used_up.limit.store_name].u == 1)
    mine = Binding([Holding(used_up.limit), Holding(inside.limit)])
    assert isinstance(await refusal(asked, mine), QuotaExhausted)
    assert store.held(inside) > 0
    await until(lambda: store.held(inside) == 0)
    assert asked.take(Binding(mine[1:]), ONE) is None
    await asked.close()
    await other.close()


async def test_who_stood_still_longer_than_a_lease_asks_before_it_uses_slack(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, store = Clock(monkeypatch), Store()
    asked = a_keeper(store)
    inside = holdings(("concurrency", "", 80))
    (await asked.reserve(inside, ONE)).release()
    at_once = asked.take(inside, ONE)
    assert at_once is not None
    at_once.release()
    clock.stand_still()
    assert asked.take(inside, ONE) is None
    await asked.close()


async def test_an_answer_that_is_older_than_its_lease_gives_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that stood still between the store's answer and its reading: others may have what was given."""
    clock, store = Clock(monkeypatch), Store()
    asked = a_keeper(store)
    known = asyncio.ensure_future(asked.reserve(holdings(("requests", "day", 5)), ONE))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    clock.stand_still()
    assert isinstance(await known, Reservation)
    assert store.asked >= 2
    await asked.close()


@pytest.mark.parametrize("fails_open", [True, False])
async def test_without_the_store_what_comes_free_is_no_slack(fails_open: bool) -> None:
    store = Store()
    asked = a_keeper(store, fails_open=fails_open)
    inside = holdings(("concurrency", "", 8))
    running = [await asked.reserve(inside, ONE) for _ in range(8)]
    store.is_away = True
    await until(lambda: asked.is_away)
    for each in running:
        each.release()
    assert asked.take(inside, ONE) is None
    if not fails_open:
        assert isinstance(await refusal(asked, inside), QuotaUnavailable)
    await asked.close()


async def test_a_question_that_fails_for_any_other_reason_leaves_nobody_waiting() -> None:
    store = Store()
    store.is_broken = True
    closed = a_keeper(store, fails_open=False)
    binding = holdings(("requests", "day", 5))
    async with asyncio.timeout(5):
        with pytest.raises(QuotaUnavailable):
            await closed.reserve(binding, ONE)
    store.is_broken = False
    async with asyncio.timeout(5):
        await until(lambda: not closed.is_away)
        assert await closed.reserve(binding, ONE)
    await closed.close()


async def test_a_store_lost_when_nothing_was_going_on_is_asked_again_by_itself() -> None:
    """The answer comes after the last tick had found nothing more to do."""
    store = Slow()
    asked = a_keeper(store)
    (await asked.reserve(holdings(("requests", "day", 5)), ONE)).settle(ONE)
    await until(lambda: store.questions == 2 and asked._timer is None)
    store.is_away = True
    store.goes_on.set()
    await until(lambda: asked.is_away)
    store.is_away = False
    await until(lambda: not asked.is_away)
    await asked.close()


async def test_a_task_cancelled_when_its_answer_is_there_gives_it_back() -> None:
    store = Store()
    asked = a_keeper(store)
    inside = holdings(("concurrency", "", 1))
    known = asyncio.ensure_future(asked.reserve(inside, ONE))
    answer = asked._answer

    def answer_and_cancel(*args: object) -> None:
        answer(*args)  # type: ignore[arg-type]
        known.cancel()

    asked._answer = answer_and_cancel  # type: ignore[method-assign]
    with pytest.raises(asyncio.CancelledError):
        await known
    assert inside[0].promised == 0
    await asked.close()
