"""What may be written into a rule or a silence."""

from __future__ import annotations

import math
from typing import Any

import pytest

from serving.control.alerts.checks import check_rule, condition_from, matchers_from
from serving.control.alerts.measures import measure_of
from serving.control.alerts.rules import Absence, BurnRate, Rule, Threshold
from tenants.errors import Invalid

SLOW: dict[str, Any] = {"type": "threshold", "metric": "total_p95_ms", "comparison": "above", "value": 200.0}


def rule(**values: Any) -> Rule:
    condition = Threshold("total_p95_ms", "above", 200.0)
    return Rule(**{"id": "alr_1", "name": "slow", "condition": condition, **values})


def wrong_fields(of: Rule) -> set[str]:
    with pytest.raises(Invalid) as refused:
        check_rule(of)
    return set(refused.value.errors)


def test_a_condition_is_kept_with_its_defaults() -> None:
    assert condition_from(SLOW) == {**SLOW, "window_s": 60, "min_requests": 1}


@pytest.mark.parametrize(
    "value",
    [
        "slow",
        None,
        {},
        {"type": "magic"},
        {**SLOW, "extra": 1},
        {**SLOW, "value": math.nan},
        {**SLOW, "value": "9"},
    ],
)
def test_what_is_no_condition_is_refused_in_a_sentence(value: Any) -> None:
    with pytest.raises(Invalid) as refused:
        condition_from(value)
    assert set(refused.value.errors) == {"condition"}


def test_labels_are_few_short_and_the_rules_own() -> None:
    check_rule(rule(labels={"team": "vision", "topic": "sla"}))
    assert wrong_fields(rule(labels={"severity": "info"})) == {"labels"}
    assert wrong_fields(rule(labels={"tenant_id": "tnt_b"})) == {"labels"}
    assert wrong_fields(rule(labels={f"l{n}": "x" for n in range(9)})) == {"labels"}
    assert wrong_fields(rule(labels={"team": "x" * 201})) == {"labels"}
    assert wrong_fields(rule(labels={"Team": "x"})) == {"labels"}
    assert wrong_fields(rule(by=("model", "model"))) == {"group_by"}


def test_a_tenants_rule_speaks_for_itself_alone() -> None:
    assert wrong_fields(rule(tenant_id="tnt_a", labels={"topic": "sla"})) == {"labels"}
    assert wrong_fields(rule(tenant_id="tnt_a", only={"tenant_id": "tnt_b"})) == {"only"}
    hosts = Threshold("host_silent_s", "above", 30)
    assert "condition" in wrong_fields(rule(tenant_id="tnt_a", condition=hosts))


def test_matchers_choose_by_words_and_simple_patterns() -> None:
    good = [
        {"label": "model", "value": "a|b.*", "operator": "=~"},
        {"label": "model", "value": "(a+)+", "operator": "="},
    ]
    assert [m.operator for m in matchers_from(good)] == ["=~", "="]


@pytest.mark.parametrize(
    "matcher",
    [
        {"label": "model", "value": "(a+)+$", "operator": "=~"},
        {"label": "model", "value": ".*.*.*.*x", "operator": "=~"},
        {"label": "model", "value": "[", "operator": "!~"},
        {"label": "model", "value": "a*", "operator": "=~"},
        {"label": "model", "value": "a\\", "operator": "=~"},
        {"label": "model", "value": "x" * 201},
        {"label": "no label", "value": "x"},
        {"label": "model", "value": "x", "operator": "~"},
        {"label": "model"},
    ],
)
def test_other_matchers_are_refused(matcher: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        matchers_from([matcher])


def test_a_silence_has_one_to_ten_matchers() -> None:
    for number in (0, 11):
        with pytest.raises(Invalid):
            matchers_from([{"label": "model", "value": "x"}] * number)


def test_a_value_has_the_unit_of_its_metric() -> None:
    assert measure_of(Threshold("total_p95_ms", "above", 200.0)) == ("ms", 200.0)
    assert measure_of(Threshold("key_expires_in_s", "below", 60.0)) == ("s", 60.0)
    assert measure_of(BurnRate()) == ("times", 6.0)
    assert measure_of(Absence()) == ("", None)
