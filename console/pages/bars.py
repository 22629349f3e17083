"""A bar chart as numbers for a drawing of 100 × 100: one bar a day, legible without a script and on paper."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import NamedTuple

GAP = 0.22
"""Share of a bar's place that stays empty."""


class Bar(NamedTuple):
    day: date
    value: int
    x: str
    y: str
    width: str
    height: str


class Bars(NamedTuple):
    bars: list[Bar]
    top: int
    """Value of the highest."""

    @property
    def first(self) -> date:
        return self.bars[0].day

    @property
    def last(self) -> date:
        return self.bars[-1].day


def bars_of(values: Sequence[tuple[date, int]]) -> Bars | None:
    """Bars from left to right; the highest fills the drawing. None for less than two days."""
    if len(values) < 2:
        return None
    top = max((value for _, value in values), default=0)
    place = 100 / max(1, len(values))
    bars = [
        Bar(
            day,
            value,
            f"{number * place + place * GAP / 2:.3f}",
            f"{100 - _height(value, top):.3f}",
            f"{place * (1 - GAP):.3f}",
            f"{_height(value, top):.3f}",
        )
        for number, (day, value) in enumerate(values)
    ]
    return Bars(bars, top)


def _height(value: int, top: int) -> float:
    """At least a hair for what was not nothing."""
    return max(0.6, 100 * value / top) if value else 0.0
