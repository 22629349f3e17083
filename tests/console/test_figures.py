"""Numbers on pages: three significant digits, a unit, and `–` for what is not there."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.templatetags import figures


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.000123, "0.000123"),
        (1.5, "1.50"),
        (9.996, "10.0"),
        (49.96, "50.0"),
        (123.4, "123"),
        (123456, "123,000"),
    ],
)
def test_three_significant_digits(value: float, text: str) -> None:
    assert figures.three_digits(value) == text


@given(st.floats(1e-9, 1e15))
def test_what_is_shown_is_within_half_a_percent(value: float) -> None:
    assert float(figures.three_digits(value).replace(",", "")) == pytest.approx(value, rel=0.0051)


@pytest.mark.parametrize(("share", "text"), [(1.0, "100"), (0.9999, "99.9"), (0.993, "99.3"), (0.0, "0.0")])
def test_a_broken_promise_is_never_rounded_to_kept(share: float, text: str) -> None:
    assert figures.percent(share).startswith(text)


@pytest.mark.parametrize(
    "show",
    [
        figures.figure,
        figures.count,
        figures.percent,
        figures.size,
        figures.money,
        figures.device_time,
        figures.duration,
        figures.when,
        figures.stamp,
    ],
)
def test_none_is_a_dash_and_never_a_zero(show: object) -> None:
    assert show(None) == "–"  # type: ignore[operator]


@pytest.mark.parametrize(("bytes_", "text"), [(0, "0"), (1024, "1.00"), (95_000_000, "90.6")])
def test_sizes(bytes_: int, text: str) -> None:
    assert figures.size(bytes_).split("\u202f")[0] == text


@pytest.mark.parametrize(
    ("micro", "text"), [(0, "0.00"), (1_234_567, "1.23"), (12, "0.0000120"), (2_500_000_000, "2,500.00")]
)
def test_money(micro: int, text: str) -> None:
    assert figures.money(micro) == text


@pytest.mark.parametrize(
    ("ago", "text"),
    [
        (5, "just now"),
        (90, "1 minute ago"),
        (7300, "2 hours ago"),
        (-7300, "in 2 hours"),
        (90_000, "1 day ago"),
    ],
)
def test_relative_times(ago: float, text: str) -> None:
    assert figures.relative(ago) == text


def test_a_time_carries_its_absolute_value_and_zone() -> None:
    shown = figures.when(datetime(2026, 11, 30, 16, 42, 43, tzinfo=UTC) - timedelta(days=2))
    assert 'title="2026-11-28 16:42:43 UTC"' in shown


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (50.0, "50.0 ms"),
        (2_000.0, "2,000 ms"),
        (10_000.0, "10.0 s"),
        (120_000, "2.00 min"),
        (3.6e6, "1.00 h"),
    ],
)
def test_long_targets_are_in_a_unit_one_can_read(milliseconds: float, text: str) -> None:
    assert figures.duration(milliseconds).replace("\u202f", " ") == text


@pytest.mark.parametrize(
    ("value", "shown"), [(None, "–"), (0.0, "0"), (3.5e-7, "< 0.00001"), (0.00313, "0.00313")]
)
def test_deviations_are_short(value: float | None, shown: str) -> None:
    assert figures.deviation(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"), [(None, "–"), (1.0, "1.000000"), (0.9999999, "0.999999"), (0.99987, "0.999870")]
)
def test_a_cosine_is_never_rounded_up_to_one(value: float | None, shown: str) -> None:
    assert figures.cosine(value) == shown
