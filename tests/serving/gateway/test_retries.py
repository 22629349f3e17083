"""The retry budget: a tenth of the traffic, and a reserve for the first failure."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from serving.gateway.retries import RESERVE, SHARE, WINDOW_S, RetryBudget


def test_a_quiet_gateway_may_retry_its_first_failures() -> None:
    budget = RetryBudget()
    assert [budget.take(sent=1) for _ in range(RESERVE + 1)] == [True] * RESERVE + [False]
    assert (budget.spent, budget.refused) == (RESERVE, 1)


def test_only_traffic_fills_the_budget_again() -> None:
    budget = RetryBudget()
    while budget.take(sent=0):
        pass
    for now in range(1000):
        budget.observe(0, float(now))
    assert not budget.take(sent=9)
    assert budget.take(sent=10)
    assert not budget.take(sent=10)


def test_half_of_what_is_in_flight_can_be_saved_under_load() -> None:
    """Two replicas, 2,000 requests a second answered within a second: one dies with a thousand in flight."""
    budget, sent = RetryBudget(), 0
    for second in range(11):
        budget.observe(sent, float(second))
        sent += 2000
    assert all(budget.take(sent) for _ in range(1000))


def test_traffic_of_long_ago_saves_nothing_up() -> None:
    budget = RetryBudget()
    budget.observe(0, 0.0)
    budget.observe(100_000, 1.0)
    for second in range(2, 30):
        budget.observe(100_000, float(second))
    assert budget.left(100_000) == RESERVE


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("sent"), st.integers(0, 500)),
            st.tuples(st.just("retry"), st.integers(1, 50)),
            st.tuples(st.just("second"), st.integers(1, 20)),
        ),
        max_size=200,
    )
)
def test_retries_never_exceed_a_tenth_of_the_traffic_and_the_reserve(steps: list[tuple[str, int]]) -> None:
    budget, sent, retried, now = RetryBudget(), 0, 0, 0.0
    sends: list[tuple[float, int]] = []
    for what, count in steps:
        if what == "sent":
            sent += count
            sends.append((now, count))
        elif what == "retry":
            recent = sum(n for at, n in sends if at >= now - WINDOW_S - 1.0)
            saved = sum(budget.take(sent) for _ in range(count))
            retried += saved
            assert saved <= max(RESERVE, SHARE * recent) + 1e-6
        else:
            for _ in range(count):
                now += 1.0
                budget.observe(sent, now)
        assert retried == budget.spent <= RESERVE + SHARE * sent + 1e-6
