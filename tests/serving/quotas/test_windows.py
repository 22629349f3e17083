"""Hours, days and months begin when the tenant's clocks say so."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.contract import QuotaWindow
from serving.quotas.windows import span

ZONES = sorted(
    name for name in available_timezones() if "/" in name and not name.startswith(("posix", "right"))
)


def at(text: str, zone: str = "UTC") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


def test_a_day_begins_at_the_tenants_midnight() -> None:
    found = span(at("2026-05-05T10:00"), "day", ZoneInfo("Asia/Shanghai"))
    assert found == (at("2026-05-05T00:00", "Asia/Shanghai"), at("2026-05-06T00:00", "Asia/Shanghai"))


def test_a_day_of_changing_clocks_has_23_or_25_hours() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    spring = span(at("2026-03-29T12:00", "Europe/Berlin"), "day", berlin)
    autumn = span(at("2026-10-25T12:00", "Europe/Berlin"), "day", berlin)
    assert (spring.end_s - spring.start_s, autumn.end_s - autumn.start_s) == (23 * 3600, 25 * 3600)


def test_the_hour_that_comes_twice_is_two_hours() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    first = span(datetime(2026, 10, 25, 0, 30, tzinfo=UTC).timestamp(), "hour", berlin)
    second = span(datetime(2026, 10, 25, 1, 30, tzinfo=UTC).timestamp(), "hour", berlin)
    assert first.end_s == second.start_s


def test_hours_of_a_zone_half_an_hour_off_begin_at_its_full_hours() -> None:
    found = span(at("2026-05-05T10:10", "Asia/Kolkata"), "hour", ZoneInfo("Asia/Kolkata"))
    assert found.start_s == at("2026-05-05T10:00", "Asia/Kolkata")


def test_december_ends_with_the_year() -> None:
    found = span(at("2026-12-31T23:59"), "month", ZoneInfo("UTC"))
    assert found == (at("2026-12-01T00:00"), at("2027-01-01T00:00"))


@pytest.mark.parametrize("window", ["hour", "day", "month"])
@given(
    now=st.integers(
        int(datetime(2000, 1, 1, tzinfo=UTC).timestamp()), int(datetime(2037, 1, 1, tzinfo=UTC).timestamp())
    ),
    zone=st.sampled_from(ZONES),
)
def test_a_moment_lies_in_its_window_and_the_next_begins_where_it_ends(
    window: QuotaWindow, now: int, zone: str
) -> None:
    found = span(now, window, ZoneInfo(zone))
    assert found.start_s <= now < found.end_s
    assert found.end_s - found.start_s <= timedelta(days=32).total_seconds()
    assert span(found.end_s, window, ZoneInfo(zone)).start_s == found.end_s
    assert span(found.start_s, window, ZoneInfo(zone)) == found
