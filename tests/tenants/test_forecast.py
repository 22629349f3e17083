"""What a month will come to: said so that a reader can compute it too."""

from __future__ import annotations

from datetime import date, timedelta

from hypothesis import given
from hypothesis import strategies as st

from tenants.forecast import first_needed, month_forecast


def test_the_days_left_cost_what_the_last_seven_did_on_average() -> None:
    days = {date(2026, 6, day): 100 for day in range(1, 15)}
    found = month_forecast(days, date(2026, 6, 15))
    assert found is not None
    assert (found.so_far, found.per_day, found.days) == (1400, 100, 7)
    assert found.at_month_end == 3000


def test_days_before_the_first_usage_do_not_count() -> None:
    found = month_forecast({date(2026, 6, 13): 40, date(2026, 6, 14): 60}, date(2026, 6, 15))
    assert found is not None and (found.days, found.per_day) == (2, 50)


def test_a_quiet_day_in_between_does() -> None:
    found = month_forecast({date(2026, 6, 12): 60, date(2026, 6, 14): 60}, date(2026, 6, 15))
    assert found is not None and (found.days, found.per_day) == (3, 40)


def test_a_month_begins_with_the_days_before_it() -> None:
    today = date(2026, 7, 1)
    days = {today - timedelta(days=back): 10 for back in range(1, 8)}
    found = month_forecast(days, today)
    assert found is not None and (found.so_far, found.at_month_end) == (0, 310)
    assert first_needed(today) == date(2026, 6, 24)


def test_today_may_be_dearer_than_a_mean_day() -> None:
    found = month_forecast({date(2026, 6, 29): 10, date(2026, 6, 30): 25}, date(2026, 6, 30))
    assert found is not None and found.at_month_end == 35


def test_before_the_first_whole_day_nothing_is_guessed() -> None:
    assert month_forecast({}, date(2026, 6, 15)) is None
    assert month_forecast({date(2026, 6, 15): 5}, date(2026, 6, 15)) is None


@given(
    st.dictionaries(st.dates(date(2026, 5, 20), date(2026, 6, 30)), st.integers(0, 10**12)),
    st.integers(1, 30),
)
def test_a_forecast_is_never_less_than_what_was_spent(costs: dict[date, int], day: int) -> None:
    today = date(2026, 6, day)
    found = month_forecast({d: c for d, c in costs.items() if d <= today}, today)
    if found is not None:
        spent = sum(cost for d, cost in costs.items() if date(2026, 6, 1) <= d <= today)
        assert found.so_far == spent <= found.at_month_end
