"""What a rule's value is measured in, and what it is compared with: the same words in lists, letters and pages. Pure."""

from __future__ import annotations

from typing import NamedTuple

from serving.control.alerts.facts import FACTS
from serving.control.alerts.rules import Absence, BurnRate, Condition, Ratio
from serving.telemetry.metrics import METRICS


class Measure(NamedTuple):
    unit: str
    """As in the catalog of metrics; `times` of a burn rate or a ratio, empty where nothing is measured."""
    threshold: float | None
    """None where nothing is compared."""


def measure_of(condition: Condition) -> Measure:
    if isinstance(condition, Absence):
        return Measure("", None)
    if isinstance(condition, BurnRate):
        return Measure("times", min(pair.factor for pair in condition.pairs))
    if isinstance(condition, Ratio):
        return Measure("times", condition.value)
    known = FACTS.get(condition.metric) or METRICS.get(condition.metric)
    return Measure(known.unit if known else "", condition.value)
