"""What rules say of what was read, and what is wrong with a rule."""

from __future__ import annotations

from typing import Any

import pytest

from serving.control.alerts.facts import Fact
from serving.control.alerts.rules import (
    Absence,
    Answer,
    BurnRate,
    Pair,
    Ratio,
    Rule,
    Threshold,
    condition_of,
    evaluate,
    problems,
)
from serving.telemetry.tally import Tally
from serving.telemetry.windows import Window

A = {"tenant_id": "tnt_a", "model": "m"}


def counted(answered: int, kept: int | None = None, failed: int = 0) -> Tally:
    return Tally(
        answered=answered,
        kept=answered if kept is None else kept,
        failed={"internal_error": failed} if failed else {},
    )


class Seen:
    """Evidence by hand: window length → tally of the one group."""

    def __init__(
        self, tallies: dict[int, Tally], facts: list[Fact] | None = None, covered_s: float = 60
    ) -> None:
        self.tallies, self.listed, self.covered_s = tallies, facts, covered_s

    def windows(self, window_s: int, by: tuple[str, ...]) -> list[Window] | None:
        tally = self.tallies.get(window_s)
        if tally is None:
            return None
        return (
            [Window({name: A[name] for name in by}, tally, self.covered_s)] if tally.ended or not by else []
        )

    def facts(self, name: str) -> list[Fact] | None:
        return self.listed


def a_rule(condition: Any, **values: Any) -> Rule:
    return Rule(id="alr_1", name="r", condition=condition, **values)


def truth(answer: Answer | None) -> list[bool | None]:
    assert answer is not None
    return [reading.is_true for reading in answer.readings]


def test_a_threshold_needs_evidence() -> None:
    rule = a_rule(Threshold("error_share", "above", 0.1, min_requests=10))
    assert truth(evaluate(rule, Seen({60: counted(80, failed=20)}))) == [True]
    assert truth(evaluate(rule, Seen({60: counted(99, failed=1)}))) == [False]
    assert truth(evaluate(rule, Seen({60: counted(1, failed=1)}))) == [None]
    assert truth(evaluate(rule, Seen({60: counted(80, failed=20)}, covered_s=0))) == [None]
    assert evaluate(rule, Seen({})) is None


def test_a_tenants_rule_reads_its_own_rows_whatever_it_says() -> None:
    condition = Threshold("error_share", "above", 0.1)
    own = a_rule(condition, tenant_id="tnt_a", only={"tenant_id": "tnt_b"})
    assert own.fixed == {"tenant_id": "tnt_a"}
    other = a_rule(condition, tenant_id="tnt_b", by=("model",))
    assert truth(evaluate(other, Seen({60: counted(1, failed=9)}))) == []


def test_a_ratio_divides_one_metric_by_another() -> None:
    rule = a_rule(Ratio("errors_s", "answered_s", "above", 0.5, window_s=60))
    assert truth(evaluate(rule, Seen({60: counted(10, failed=10)}))) == [True]
    assert truth(evaluate(rule, Seen({60: counted(0, failed=10)}))) == [None]


def test_absence_is_of_what_was_there_before_and_a_gap_is_none() -> None:
    rule = a_rule(Absence(window_s=300, seen_s=3600))
    assert truth(evaluate(rule, Seen({300: Tally(), 3600: counted(10)}))) == [True]
    assert truth(evaluate(rule, Seen({300: counted(1), 3600: counted(10)}))) == [False]
    assert truth(evaluate(rule, Seen({300: Tally(), 3600: counted(10)}, covered_s=0))) == [None]
    assert truth(evaluate(rule, Seen({300: Tally(), 3600: Tally()}))) == []


GOOD, BAD = counted(1000), counted(1000, kept=800)


@pytest.mark.parametrize(
    ("long", "short", "is_burning"),
    [(BAD, BAD, True), (BAD, GOOD, False), (GOOD, BAD, False), (BAD, Tally(), None), (GOOD, Tally(), False)],
)
def test_a_budget_burns_when_both_windows_say_so(long: Tally, short: Tally, is_burning: bool | None) -> None:
    rule = a_rule(BurnRate(objective=0.99, pairs=(Pair(3600, 300, 14.4),)))
    assert truth(evaluate(rule, Seen({3600: long, 300: short}))) == [is_burning]


def test_a_slow_burn_is_found_by_the_longer_pair_with_its_rate() -> None:
    slow = counted(1000, kept=920)
    answer = evaluate(a_rule(BurnRate()), Seen({3600: slow, 300: slow, 21_600: slow, 1800: slow}))
    assert truth(answer) == [True]
    assert answer is not None
    assert answer.readings[0].value == pytest.approx(8.0)


def test_a_fact_is_compared_and_its_list_is_whole() -> None:
    rule = a_rule(Threshold("budget_used_share", "above", 0.8))
    labels = {"tenant_id": "tnt_a", "quota": "money", "quota_id": "quo_1"}
    answer = evaluate(rule, Seen({}, [Fact(labels, 0.9), Fact(labels, None)]))
    assert truth(answer) == [True, None]
    assert answer is not None
    assert answer.is_whole
    assert evaluate(rule, Seen({}, None)) is None


@pytest.mark.parametrize(
    ("rule", "field"),
    [
        (a_rule(Threshold("nothing", "above", 1)), "condition"),
        (a_rule(Threshold("error_share", "above", 1, window_s=1)), "condition"),
        (a_rule(BurnRate(objective=1.0)), "condition"),
        (a_rule(BurnRate(pairs=(Pair(300, 300, 1),))), "condition"),
        (a_rule(Threshold("error_share", "above", 1), by=("planet",)), "by"),
        (a_rule(Threshold("error_share", "above", 1), for_s=-1), "for_s"),
        (a_rule(Threshold("replicas_ready", "below", 1), by=(), tenant_id="tnt_a"), "condition"),
    ],
)
def test_what_is_wrong_with_a_rule_is_said_by_field(rule: Rule, field: str) -> None:
    assert field in problems(rule)


def test_a_condition_from_plain_data_says_what_is_wrong() -> None:
    good = condition_of({"type": "threshold", "metric": "pending", "comparison": "above", "value": 5})
    assert problems(a_rule(good)) == {}
    with pytest.raises(ValueError, match="comparison"):
        condition_of({"type": "threshold", "metric": "pending", "comparison": "near", "value": 5})
