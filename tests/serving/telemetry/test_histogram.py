"""Percentiles stay within one percent, however counts were split and merged."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from serving.telemetry.histogram import Histogram, value_of

values = st.lists(st.integers(1, 3_000_000), min_size=1, max_size=200)


def filled(numbers: list[int]) -> Histogram:
    histogram = Histogram()
    for number in numbers:
        histogram.record(number)
    return histogram


@given(values, st.floats(0.01, 1.0))
def test_a_percentile_is_within_one_percent_of_a_real_value(numbers: list[int], quantile: float) -> None:
    [got] = filled(numbers).percentiles([quantile])
    exact = sorted(numbers)[max(1, math.ceil(quantile * len(numbers))) - 1]
    assert got is not None
    assert abs(got - exact) <= 0.0101 * exact


@given(values, st.integers(1, 7))
def test_merging_any_split_gives_the_same_histogram(numbers: list[int], parts: int) -> None:
    merged = Histogram()
    for start in reversed(range(parts)):
        merged.merge(filled(numbers[start::parts]))
    whole = filled(numbers)
    assert (merged.counts, merged.sum, merged.count) == (whole.counts, whole.sum, len(numbers))


def test_an_empty_histogram_has_no_percentiles() -> None:
    assert Histogram().percentiles([0.5, 0.99]) == [None, None]


def test_zero_and_the_largest_values_have_buckets_of_their_own() -> None:
    histogram = filled([0, 10**12])
    low, high = histogram.percentiles([0.5, 1.0])
    assert low == 0.0
    assert high is not None
    assert high >= 3.5e9


@given(values, st.integers(1, 3_000_000))
def test_counting_up_to_a_limit_is_right_to_within_one_bucket(numbers: list[int], limit: int) -> None:
    histogram = filled(numbers)
    low = sum(n <= limit / 1.03 for n in numbers)
    high = sum(n <= limit * 1.03 for n in numbers)
    assert low <= histogram.count_at_most(limit) <= high


def test_taking_starts_an_empty_window() -> None:
    histogram = filled([5, 6])
    assert histogram.take().count == 2
    assert histogram.count == 0


def test_a_bucket_stands_for_the_middle_of_its_range() -> None:
    assert value_of(0) == 0.0
    assert value_of(1) < value_of(2)
