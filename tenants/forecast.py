"""What a month will cost, as simply as it can be said: what it cost so far, and the mean of the last days."""

from __future__ import annotations

import calendar
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta

MEAN_DAYS = 7


@dataclass(frozen=True, slots=True)
class Forecast:
    """Micro-units. `days` complete days were averaged, at most `MEAN_DAYS`, none before the first usage."""

    so_far: int
    per_day: int
    days: int
    at_month_end: int


def first_needed(today: date) -> date:
    """The oldest day whose cost a forecast looks at."""
    return min(today.replace(day=1), today - timedelta(days=MEAN_DAYS))


def so_far(cost_by_day: Mapping[date, int], today: date) -> int:
    """What the running month has cost, micro-units."""
    return sum(cost for day, cost in cost_by_day.items() if today.replace(day=1) <= day <= today)


def month_forecast(cost_by_day: Mapping[date, int], today: date) -> Forecast | None:
    """None before the first complete day with usage: one would be a guess.

    Today counts as a mean day, or as what it cost already where that is more.
    """
    window = [today - timedelta(days=back) for back in range(MEAN_DAYS, 0, -1)]
    used = [day for day in window if cost_by_day.get(day)]
    if not used:
        return None
    averaged = [day for day in window if day >= used[0]]
    per_day = sum(cost_by_day.get(day, 0) for day in averaged) // len(averaged)
    left = calendar.monthrange(today.year, today.month)[1] - today.day
    rest = max(0, per_day - cost_by_day.get(today, 0)) + per_day * left
    spent = so_far(cost_by_day, today)
    return Forecast(spent, per_day, len(averaged), spent + rest)
