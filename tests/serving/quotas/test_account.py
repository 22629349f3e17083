"""What the accounts make of messages that come late, come again, or from a process whose clock is wrong."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Callable

import pytest
from redis import Redis

from serving.quotas import account
from serving.quotas.account import BUDGET, KNOWN_MS, Account, Ask, Batch, Verdicts
from serving.quotas.keeper import StoreAway
from serving.quotas.valkey import WHOLE, ValkeyAccounts

NOW_MS = int(time.time() * 1000)
TODAY_S = NOW_MS // 1000 - 3600
LEASE_MS = 5000
Take = Callable[[Batch], Verdicts]


def ask(spent: int, *, window: int = TODAY_S, acked: int = 0) -> Ask:
    return Ask(BUDGET, 10, 0, 0.0, window, (window + 86_400) * 1000, True, acked, spent, 0, 0, 0)


def batch(process: str, turn: int, *asks: Ask) -> Batch:
    return Batch(process, LEASE_MS, list(asks), [], turn)


@pytest.fixture(params=["here", "in Valkey"])
def take(request: pytest.FixtureRequest) -> Take:
    name = f"tidegate:quota:{{tnt_{secrets.token_hex(4)}}}:a"
    if request.param == "here":
        accounts: dict[str, Account] = {}
        return lambda sent: account.take(accounts, [name], sent, NOW_MS)
    Redis.from_url(os.environ["VALKEY_URL"]).set(WHOLE, "1")

    async def ask_valkey(sent: Batch) -> Verdicts:
        store = ValkeyAccounts(os.environ["VALKEY_URL"])
        try:
            return await store.take([name], sent)
        except StoreAway:
            return Verdicts(True, [], [])
        finally:
            await store.close()

    return lambda sent: asyncio.run(ask_valkey(sent))


def used(verdicts: Verdicts) -> int:
    return verdicts.views[0].used


def test_a_message_overtaken_by_a_newer_one_changes_nothing(take: Take) -> None:
    take(batch("p", 2, ask(5)))
    assert take(batch("p", 1, ask(3))).views == []
    assert used(take(batch("p", 3, ask(6)))) == 6


def test_a_message_that_comes_twice_counts_once(take: Take) -> None:
    take(batch("p", 1, ask(4)))
    assert used(take(batch("p", 1, ask(4)))) == 4


def test_a_clock_far_ahead_moves_no_window(take: Take) -> None:
    take(batch("p", 1, ask(4)))
    assert used(take(batch("ahead", 1, ask(3, window=TODAY_S + 40 * 86_400)))) == 7
    assert used(take(batch("p", 2, ask(5)))) == 8


def test_what_a_clock_far_ahead_used_first_counts_in_the_window_of_now(take: Take) -> None:
    assert used(take(batch("ahead", 1, ask(3, window=TODAY_S + 86_400)))) == 3
    assert used(take(batch("p", 1, ask(4)))) == 7


def test_a_window_that_has_begun_is_turned_to(take: Take) -> None:
    take(batch("p", 1, ask(4, window=TODAY_S - 86_400)))
    assert used(take(batch("p", 2, ask(5)))) == 1


def test_who_was_not_heard_of_for_a_lease_is_not_counted_twice() -> None:
    """Its message was carried out, the answer was lost, and it came back after its lease."""
    accounts: dict[str, Account] = {}
    account.take(accounts, ["a"], batch("p", 1, ask(4)), NOW_MS)
    late_ms = NOW_MS + LEASE_MS + 1
    assert used(account.take(accounts, ["a"], batch("p", 2, ask(4)), late_ms)) == 4


def test_who_is_long_gone_leaves_no_row() -> None:
    accounts: dict[str, Account] = {}
    account.take(accounts, ["a"], batch("p", 1, ask(4)), NOW_MS)
    account.take(accounts, ["a"], batch("q", 1, ask(0)), NOW_MS + LEASE_MS + KNOWN_MS)
    assert list(accounts["a"].p) == ["q"]
