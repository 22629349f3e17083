"""Circuit breakers: when they open, how they close, and that no tenant opens one for the others."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from serving.gateway.breaker import (
    CONSECUTIVE_FAILURES,
    DEATHS,
    FIRST_WAIT_S,
    FORGIVEN_AFTER_S,
    LEAST_SAMPLES,
    LONGEST_WAIT_S,
    WINDOW_S,
    Breaker,
    Probe,
    State,
    admitting,
)


def breaker() -> Breaker:
    return Breaker(lambda: 0.5)


def fail(it: Breaker, tenants: str, now: float = 0.0) -> None:
    for tenant in tenants:
        it.failed(tenant, now)


def opened_for_everyone(now: float = 0.0) -> Breaker:
    it = breaker()
    fail(it, "ab" * CONSECUTIVE_FAILURES, now)
    return it


def probed(it: Breaker, tenant: str) -> Probe:
    probe = it.claim(tenant)
    assert probe is not None
    return probe


def test_a_calm_replica_takes_everybody() -> None:
    it = breaker()
    assert it.is_calm and it.admits("a", 0.0) and it.claim("a") is None
    assert it.state(0.0) is State.CLOSED


def test_failures_in_a_row_of_several_tenants_open_it_for_everyone() -> None:
    it = opened_for_everyone()
    assert it.state(0.0) is State.OPEN
    assert not it.admits("c", 0.0) and not it.is_closed_for("c")
    assert it.wait_s("c", 0.0) == FIRST_WAIT_S


def test_failures_of_one_tenant_stop_that_tenant_only() -> None:
    it = breaker()
    fail(it, "a" * 1000)
    assert not it.admits("a", 0.0)
    assert it.admits("b", 0.0) and it.is_closed_for("b")
    assert it.state(0.0) is State.CLOSED and it.tenants_stopped() == 1


def test_an_answer_ends_a_row_of_failures() -> None:
    it = breaker()
    for _ in range(10):
        fail(it, "abab")
        for tenant in "aaabbb":
            it.answered(tenant, 0.0)
    assert it.admits("a", 0.0) and it.admits("b", 0.0) and it.admits("c", 0.0)


def test_half_of_the_answers_failing_opens_it() -> None:
    it = breaker()
    for _ in range(LEAST_SAMPLES):
        for tenant in "ab":
            it.failed(tenant, 0.0)
            it.answered(tenant, 0.0)
    assert it.state(0.0) is State.OPEN


def test_failures_of_long_ago_do_not_count() -> None:
    it = breaker()
    for step in range(100):
        it.failed("a", step * WINDOW_S)
        it.answered("a", step * WINDOW_S)
    assert it.admits("a", 100 * WINDOW_S)


def test_it_is_calm_again_when_a_window_passed_without_failures() -> None:
    it = breaker()
    fail(it, "a")
    it.calm_down(WINDOW_S / 2)
    assert not it.is_calm
    it.calm_down(WINDOW_S)
    assert it.is_calm


def test_exactly_one_probe_is_admitted_and_its_answer_closes_the_circuit() -> None:
    it = opened_for_everyone()
    assert it.admits("c", FIRST_WAIT_S) and it.state(FIRST_WAIT_S) is State.HALF_OPEN
    probe = probed(it, "c")
    assert not it.admits("c", FIRST_WAIT_S) and not it.admits("d", FIRST_WAIT_S)
    it.answered("c", FIRST_WAIT_S, probe)
    assert it.admits("c", FIRST_WAIT_S) and it.admits("d", FIRST_WAIT_S)
    assert it.state(FIRST_WAIT_S) is State.CLOSED


def test_a_probe_that_says_nothing_is_followed_by_another() -> None:
    it = opened_for_everyone()
    it.release(probed(it, "c"))
    assert it.admits("d", FIRST_WAIT_S)


def test_answers_to_requests_sent_before_close_nothing() -> None:
    it = opened_for_everyone()
    it.answered("c", 0.1)
    assert it.state(0.1) is State.OPEN


def test_failing_probes_double_the_wait_up_to_a_limit() -> None:
    it, now, waits = opened_for_everyone(), 0.0, []
    for step in range(8):
        now += it.wait_s("x", now)
        tenant = f"tenant {step}"
        it.failed(tenant, now, probed(it, tenant))
        waits.append(it.wait_s("x", now))
    assert waits == [2.0, 4.0, 8.0, 16.0, LONGEST_WAIT_S, LONGEST_WAIT_S, LONGEST_WAIT_S, LONGEST_WAIT_S]


def test_one_tenants_failing_probes_do_not_lengthen_the_wait_of_others() -> None:
    it, now = opened_for_everyone(), FIRST_WAIT_S
    for _ in range(10):
        it.failed("c", now, probed(it, "c"))
        assert it.wait_s("d", now) <= 2 * FIRST_WAIT_S
        assert it.wait_s("c", now) > it.wait_s("d", now), "others go first"
        now += it.wait_s("c", now)


def test_a_circuit_that_stays_closed_is_forgiven() -> None:
    it, now = opened_for_everyone(), FIRST_WAIT_S
    it.answered("a", now, probed(it, "a"))
    now += 1.0
    fail(it, "cd" * CONSECUTIVE_FAILURES, now)
    assert it.wait_s("x", now) == 2 * FIRST_WAIT_S
    now += it.wait_s("x", now)
    it.answered("x", now, probed(it, "x"))
    now += FORGIVEN_AFTER_S + 1.0
    fail(it, "ef" * CONSECUTIVE_FAILURES, now)
    assert it.wait_s("x", now) == FIRST_WAIT_S


@pytest.mark.parametrize(("chance", "wait_s"), [(0.0, 0.8), (0.5, 1.0), (1.0, 1.2)])
def test_waits_are_spread(chance: float, wait_s: float) -> None:
    it = Breaker(lambda: chance)
    fail(it, "ab" * CONSECUTIVE_FAILURES)
    assert it.wait_s("c", 0.0) == pytest.approx(wait_s)


def test_deaths_that_no_tenant_explains_open_it_for_everyone() -> None:
    it = breaker()
    for present in ("ab", "bc", "cd"):
        it.lost(set(present), 0.0)
    assert DEATHS == 3 and it.state(0.0) is State.OPEN


def test_deaths_with_the_same_tenant_present_stop_that_tenant_only() -> None:
    it = breaker()
    for step in range(50):
        it.lost({"killer", f"victim {step}"}, 0.0)
    assert it.state(0.0) is State.CLOSED
    assert not it.admits("killer", 0.0) and it.admits("victim 1", 0.0)


def test_one_death_stops_nobody_however_much_was_in_flight() -> None:
    it = breaker()
    it.lost({f"tenant {index}" for index in range(100)}, 0.0)
    assert all(it.admits(f"tenant {index}", 0.0) for index in range(100))


def test_a_new_process_may_be_probed_at_once_by_one_request() -> None:
    it = opened_for_everyone()
    it.renewed(0.1)
    assert it.admits("c", 0.1)
    probe = probed(it, "c")
    assert not it.admits("d", 0.1)
    it.answered("c", 0.1, probe)
    assert it.admits("d", 0.1)


# ---------------------------------------------------------------- the replicas of a version


def test_an_open_replica_is_passed_over_while_another_is_closed() -> None:
    assert admitting([opened_for_everyone(), breaker(), breaker()], "c", 0.0) == [1, 2]


def test_a_replica_that_is_due_gets_its_probe_at_once_and_no_second_request() -> None:
    replicas = [opened_for_everyone(), breaker()]
    assert admitting(replicas, "c", FIRST_WAIT_S) == [0]
    probed(replicas[0], "c")
    assert admitting(replicas, "c", FIRST_WAIT_S) == [1]


def test_a_version_whose_replicas_are_all_open_is_probed_by_one_request() -> None:
    replicas = [opened_for_everyone(), opened_for_everyone(), opened_for_everyone()]
    assert admitting(replicas, "c", 0.0) == []
    (place,) = admitting(replicas, "c", FIRST_WAIT_S)
    probe = probed(replicas[place], "c")
    assert admitting(replicas, "d", FIRST_WAIT_S) == []
    replicas[place].answered("c", FIRST_WAIT_S, probe)
    (second,) = admitting(replicas, "d", FIRST_WAIT_S)
    assert second != place, "the next one that is due is probed while the first serves"


# ---------------------------------------------------------------- the promise of isolation

outcomes = st.lists(
    st.tuples(st.sampled_from(["failed", "lost", "answered", "pause"]), st.floats(0.0, 3.0)), max_size=300
)


@example([("failed", 0.0)] * 4 + [("lost", 0.0)] * 5 + [("failed", 0.0)], 0)
@example([("lost", 0.0)] * 30, 0)
@given(outcomes, st.integers(0, 3))
def test_whatever_one_tenant_meets_the_others_are_admitted(
    steps: list[tuple[str, float]], calls_between: int
) -> None:
    """The others are answered, and are in flight at deaths that the one tenant is also in flight at."""
    it, now = breaker(), 0.0
    for what, pause_s in steps:
        match what:
            case "failed":
                probe = it.claim("poison") if it.admits("poison", now) else None
                it.failed("poison", now, probe)
            case "lost":
                it.lost({"poison", "b", "c"}, now)
            case "answered":
                it.answered("poison", now)
            case _:
                now += pause_s
                it.calm_down(now)
        assert it.state(now) is State.CLOSED
        for tenant in ("b", "c"):
            if what == "lost":  # what survived is answered elsewhere or here: a victim's row ends
                it.answered(tenant, now)
            assert it.admits(tenant, now) and it.is_closed_for(tenant)
        for _ in range(calls_between):
            it.answered("b", now)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.sampled_from([0.0, 0.1, 1.0])), max_size=300)
)
def test_it_opens_for_everyone_only_on_evidence_that_stands_without_any_one_tenant(
    history: list[tuple[str, bool, float]],
) -> None:
    it, now = breaker(), 0.0
    failures = dict.fromkeys("abc", 0)
    for tenant, is_failure, pause_s in history:
        now += pause_s
        if is_failure:
            it.failed(tenant, now)
            failures[tenant] += 1
        else:
            it.answered(tenant, now)
        if it.state(now) is not State.CLOSED:
            assert sum(failures.values()) - max(failures.values()) >= CONSECUTIVE_FAILURES
            return


class AnyHistory(RuleBasedStateMachine):
    """Sends as the dispatcher does, and settles in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.it, self.now = breaker(), 0.0
        self.flying: list[tuple[str, Probe | None]] = []

    @rule(tenant=st.sampled_from("abc"))
    def send(self, tenant: str) -> None:
        if self.it.admits(tenant, self.now):
            self.flying.append((tenant, self.it.claim(tenant)))

    @precondition(lambda self: self.flying)
    @rule(data=st.data(), outcome=st.sampled_from(["answered", "failed", "nothing"]))
    def settle(self, data: st.DataObject, outcome: str) -> None:
        tenant, probe = self.flying.pop(data.draw(st.integers(0, len(self.flying) - 1)))
        if outcome == "answered":
            self.it.answered(tenant, self.now, probe)
        elif outcome == "failed":
            self.it.failed(tenant, self.now, probe)
        elif probe is not None:
            self.it.release(probe)

    @rule()
    def die(self) -> None:
        lost, self.flying = self.flying, []
        if lost:
            probes = [probe for _, probe in lost if probe is not None]
            self.it.lost({tenant for tenant, _ in lost}, self.now, probes)
        self.it.renewed(self.now)

    @rule(pause_s=st.floats(0.0, 40.0))
    def wait(self, pause_s: float) -> None:
        self.now += pause_s
        self.it.calm_down(self.now)

    @invariant()
    def no_circuit_has_two_probes_and_none_is_forgotten(self) -> None:
        claimed = [circuit for _, probe in self.flying if probe is not None for circuit in probe.circuits]
        assert len(claimed) == len({id(circuit) for circuit in claimed})
        if not claimed:
            assert not any(self.it.is_probed_for(tenant) for tenant in "abc")

    @invariant()
    def everybody_is_admitted_sooner_or_later(self) -> None:
        if not any(probe for _, probe in self.flying):
            longest_s = LONGEST_WAIT_S * 1.2 + FIRST_WAIT_S
            assert all(self.it.admits(tenant, self.now + longest_s) for tenant in "abc")


TestAnyHistory = AnyHistory.TestCase
