"""The alert engine in virtual time: when alerts fire, resolve, and stay as they are."""

from __future__ import annotations

from itertools import pairwise

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from serving.control.alerts.engine import LOST_S, MAX_ALERTS, Alert, Step, advance, end_all, fingerprint
from serving.control.alerts.rules import Answer, Reading, Rule, Threshold

LABELS = {"tenant_id": "tnt_a", "model": "minilm"}


def a_rule(for_s: float = 0.0, keep_firing_s: float = 60.0) -> Rule:
    condition = Threshold("error_share", "above", 0.05)
    return Rule(id="alr_1", name="errors", condition=condition, for_s=for_s, keep_firing_s=keep_firing_s)


def said(is_true: bool | None, value: float | None = 0.5, *, is_whole: bool = False) -> Answer:
    return Answer([Reading(LABELS, is_true, value)], is_whole)


NOTHING = Answer([], is_whole=False)
GONE = Answer([], is_whole=True)


class Watched:
    """Feeds a rule second by second, and restarts before every step: states cross as bytes."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.alerts: dict[str, Alert] = {}
        self.moved: list[tuple[str, float]] = []

    def see(self, answer: Answer | None, now: float) -> Step:
        stored = msgspec.json.decode(msgspec.json.encode(self.alerts), type=dict[str, Alert])
        step = advance(self.rule, stored, answer, now)
        self.alerts = step.alerts
        self.moved += [(move.alert.state, now) for move in step.transitions]
        return step

    @property
    def alert(self) -> Alert | None:
        return next(iter(self.alerts.values()), None)


def test_an_alert_fires_once_after_it_was_true_for_as_long_as_the_rule_says() -> None:
    watched = Watched(a_rule(for_s=30))
    for now in range(60):
        watched.see(said(True), now)
    assert watched.moved == [("firing", 30)]
    assert watched.alert is not None
    assert (watched.alert.since, watched.alert.fired_at) == (0, 30)


def test_what_is_untrue_before_its_time_never_fires_and_begins_anew() -> None:
    watched = Watched(a_rule(for_s=30))
    for now in range(120):
        watched.see(said(now % 20 != 0), now)
    assert watched.moved == []


def test_an_alert_resolves_when_it_was_untrue_for_as_long_as_the_rule_says() -> None:
    watched = Watched(a_rule(keep_firing_s=60))
    watched.see(said(True), 0)
    for now in range(1, 100):
        watched.see(said(False), now)
    assert watched.moved == [("firing", 0), ("resolved", 60)]
    assert watched.alert is not None
    assert watched.alert.why == "calm"


def test_without_evidence_nothing_resolves_and_the_alert_is_marked_stale() -> None:
    watched = Watched(a_rule(keep_firing_s=10))
    watched.see(said(True, 0.7), 0)
    for now, answer in enumerate([said(None, None), NOTHING, None] * 100, start=1):
        watched.see(answer, now)
    assert watched.moved == [("firing", 0)]
    assert watched.alert is not None
    assert (watched.alert.is_stale, watched.alert.value) == (True, 0.7)
    watched.see(said(True, 0.6), 400)
    assert not watched.alert.is_stale
    assert watched.moved == [("firing", 0)]


def test_an_alert_without_any_evidence_for_an_hour_ends_and_says_why() -> None:
    watched = Watched(a_rule())
    watched.see(said(True), 0)
    watched.see(NOTHING, LOST_S)
    assert watched.alert is not None
    assert (watched.alert.state, watched.alert.why) == ("resolved", "no_data")


def test_a_thing_that_is_gone_from_a_whole_list_resolves_its_alert() -> None:
    watched = Watched(a_rule(keep_firing_s=0))
    watched.see(said(True), 0)
    watched.see(GONE, 1)
    assert watched.alert is not None
    assert (watched.alert.state, watched.alert.why) == ("resolved", "gone")


def test_what_fires_again_and_again_has_to_be_calm_for_longer() -> None:
    watched = Watched(a_rule(keep_firing_s=30))
    for now in range(0, 3600, 5):
        watched.see(said(now % 60 < 10), now)
    # On for ten seconds in each minute: it settles into one alert, not sixty.
    assert len(watched.moved) <= 5
    assert watched.alert is not None
    assert watched.alert.state == "firing"


def test_a_rule_has_a_bounded_number_of_alerts_and_counts_the_others() -> None:
    readings = [Reading({"tenant_id": f"tnt_{n}", "model": "m"}, True, 1.0) for n in range(MAX_ALERTS + 50)]
    step = advance(a_rule(), {}, Answer(readings, is_whole=False), 0.0)
    assert (len(step.alerts), step.left_out) == (MAX_ALERTS, 50)
    again = advance(a_rule(), step.alerts, Answer(readings, is_whole=False), 1.0)
    assert (len(again.alerts), again.left_out, again.transitions) == (MAX_ALERTS, 50, [])


def test_a_rule_that_is_switched_off_resolves_what_fires_and_forgets_what_is_pending() -> None:
    firing = advance(a_rule(), {}, said(True), 0.0).alerts
    assert [move.alert.state for move in end_all(firing, 5.0).transitions] == ["resolved"]
    pending = advance(a_rule(for_s=60), {}, said(True), 0.0).alerts
    step = end_all(pending, 5.0)
    assert (step.alerts, step.transitions, step.dropped) == ({}, [], list(pending))


def test_an_alert_is_the_same_whatever_the_order_of_its_labels() -> None:
    assert fingerprint("r", {"a": "1", "b": "2"}) == fingerprint("r", {"b": "2", "a": "1"})
    assert fingerprint("r", {"a": "1", "b": "2"}) != fingerprint("r", {"a": "1\x1eb\x1f2"})


says = st.sampled_from([said(True), said(False), said(None, None), NOTHING, GONE, None])


@given(
    st.lists(st.tuples(says, st.integers(1, 40)), max_size=120),
    st.sampled_from([0.0, 10.0, 45.0]),
    st.sampled_from([0.0, 20.0, 60.0]),
)
def test_transitions_alternate_keep_their_times_and_are_never_lost(
    heard: list[tuple[Answer | None, int]], for_s: float, keep_s: float
) -> None:
    watched, now = Watched(a_rule(for_s, keep_s)), 0.0
    for answer, gap_s in heard:
        now += gap_s
        watched.see(answer, now)
        state = watched.alert.state if watched.alert is not None else None
        last = watched.moved[-1][0] if watched.moved else None
        assert (state == "firing") == (last == "firing")
    for (before, began), (after, ended) in pairwise(watched.moved):
        assert before != after
        if after == "resolved":
            assert ended - began >= keep_s
        else:
            assert ended - began >= for_s


@given(st.lists(st.tuples(says, st.integers(1, 40)), max_size=80))
def test_a_step_that_is_repeated_at_the_same_moment_changes_nothing(
    heard: list[tuple[Answer | None, int]],
) -> None:
    rule, alerts, now = a_rule(for_s=10), dict[str, Alert](), 0.0
    for answer, gap_s in heard:
        now += gap_s
        alerts = advance(rule, alerts, answer, now).alerts
        again = advance(rule, alerts, answer, now)
        assert (again.transitions, again.alerts) == ([], alerts)
