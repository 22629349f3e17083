"""The shipped rules."""

from __future__ import annotations

from serving.control.alerts.defaults import SHIPPED
from serving.control.alerts.models import plain
from serving.control.alerts.rules import Rule, Threshold, condition_of, problems


def test_every_shipped_rule_can_be_watched_and_kept() -> None:
    for shipped in SHIPPED:
        rule = Rule(id="alr_1", name=shipped.name, condition=shipped.condition, by=shipped.by)
        assert problems(rule) == {}, shipped.name
        assert condition_of(plain(shipped.condition)) == shipped.condition
    assert len({shipped.name for shipped in SHIPPED}) == len(SHIPPED)


def test_a_threshold_beyond_every_value_of_a_share_is_not_shipped() -> None:
    shares = [
        s.condition
        for s in SHIPPED
        if isinstance(s.condition, Threshold) and s.condition.metric.endswith("share")
    ]
    assert all(0 < condition.value < 1 for condition in shares)
