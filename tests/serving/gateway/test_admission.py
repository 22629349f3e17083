"""Admission is pure: whatever arrives when, no window ever holds more than its limit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from serving.contract import TenantEntry
from serving.gateway.admission import TenantGate


def tenant(**limits: float | None) -> TenantEntry:
    return TenantEntry(id="tnt_a", slug="a", name="a", **limits)  # type: ignore[arg-type]


@given(
    gaps=st.lists(st.floats(0, 2), min_size=1, max_size=200),
    rate=st.floats(0.5, 100),
    burst=st.integers(1, 20),
)
def test_no_window_holds_more_than_burst_and_rate(gaps: list[float], rate: float, burst: int) -> None:
    gate, limits = TenantGate(), tenant(requests_per_s=rate, burst=burst)
    now, admitted = 1000.0, []
    for gap in gaps:
        now += gap
        if gate.enter(limits, now) is None:
            gate.leave()
            admitted.append(now)
    for first in range(len(admitted)):
        for last in range(first, len(admitted)):
            window_s = admitted[last] - admitted[first]
            assert last - first + 1 <= burst + rate * window_s + 1e-6


@given(rate=st.floats(0.5, 100), burst=st.integers(1, 20))
def test_a_refused_request_enters_when_it_was_told_to_come_back(rate: float, burst: int) -> None:
    gate, limits = TenantGate(), tenant(requests_per_s=rate, burst=burst)
    for _ in range(burst):
        assert gate.enter(limits, 5.0) is None
    refusal = gate.enter(limits, 5.0)
    assert refusal is not None and refusal.code == "rate_limited"
    assert gate.enter(limits, 5.0 + refusal.retry_after_s + 1e-6) is None


@given(moves=st.lists(st.booleans(), max_size=200), limit=st.integers(1, 10))
def test_never_more_in_flight_than_the_limit(moves: list[bool], limit: int) -> None:
    gate, limits, inside = TenantGate(), tenant(max_concurrency=limit), 0
    for is_enter in moves:
        if is_enter:
            refusal = gate.enter(limits, 0.0)
            assert (refusal is None) == (inside < limit)
            inside += refusal is None
        elif inside:
            gate.leave()
            inside -= 1
        assert gate.in_flight == inside <= limit


def test_a_refusal_takes_nothing_from_the_rate() -> None:
    gate, limits = TenantGate(), tenant(requests_per_s=1.0, burst=1)
    assert gate.enter(limits, 0.0) is None
    for _ in range(50):
        assert gate.enter(limits, 0.5) is not None
    assert gate.enter(limits, 1.0) is None


def test_gateways_share_the_limits() -> None:
    gate, limits = TenantGate(), tenant(max_concurrency=4)
    assert [gate.enter(limits, 0.0, share=0.5) is None for _ in range(3)] == [True, True, False]


def test_a_rate_of_zero_admits_nothing() -> None:
    refusal = TenantGate().enter(tenant(requests_per_s=0.0), 0.0)
    assert refusal is not None and refusal.retry_after_s > 0


def test_refusals_carry_their_numbers() -> None:
    gate, limits = TenantGate(), tenant(max_concurrency=1)
    gate.enter(limits, 0.0)
    refusal = gate.enter(limits, 0.0)
    assert refusal is not None
    assert (refusal.code, refusal.numbers) == ("concurrency_exceeded", {"in_flight": 1, "limit": 1})


def test_new_limits_hold_from_the_next_request_on() -> None:
    gate = TenantGate()
    assert gate.enter(tenant(max_concurrency=1), 0.0) is None
    assert gate.enter(tenant(max_concurrency=1), 0.0) is not None
    assert gate.enter(tenant(max_concurrency=2), 0.0) is None
    refusal = gate.enter(tenant(max_concurrency=2), 0.0, share=0.5)
    assert refusal is not None and refusal.numbers["limit"] == 1
