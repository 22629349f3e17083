"""Windows: sums over the last minutes, the same however they were gathered, and honest about gaps."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.telemetry.frames import slots_of
from serving.telemetry.histogram import Histogram
from serving.telemetry.metrics import METRICS
from serving.telemetry.tally import Tally, decode_tally
from serving.telemetry.windows import KEPT_S, LATE_S, SLICE_S, RecentWindows, SeriesKey, Window

START = 10_000
KEY = SeriesKey("tnt_a", "minilm", "mv_1", "infer", "interactive")
OTHER = SeriesKey("tnt_b", "minilm", "mv_1", "infer", "interactive")


def tally(*totals_us: int, **more: int) -> Tally:
    histogram = Histogram()
    for total in totals_us:
        histogram.record(total)
    n = len(totals_us)
    return Tally(
answered=n, kept=n, rows=n, tokens=7 * n, closes={"full": n} if n else {},
        slots=slots_of([("total", histogram)]), **more,
    )  # fmt: skip


def fed(seconds: int, *keys: SeriesKey) -> RecentWindows:
    """One answer of 10 ms per key and second since START, and the present is their end."""
    windows = RecentWindows()
    for second in range(START, START + seconds):
        for key in keys:
            windows.add(second, key, tally(10_000))
        windows.cover(second)
        windows.advance(second)
    return windows


def one(windows: RecentWindows, window_s: float, now: float) -> Window:
    (window,) = windows.read(window_s, now, ())
    return window


def test_a_window_sums_what_its_seconds_counted() -> None:
    window = one(fed(120, KEY), 60, START + 120)
    assert (window.tally.answered, window.covered_s) == (60, 60)
    assert METRICS["requests_s"].read(window.tally, window.covered_s) == 1.0
    assert METRICS["total_p95_ms"].read(window.tally, window.covered_s) == pytest.approx(10, rel=0.01)


def test_windows_are_split_by_the_labels_asked_for() -> None:
    windows = fed(30, KEY, OTHER)
    by_tenant = {
        w.labels["tenant_id"]: w.tally.answered for w in windows.read(30, START + 30, ("tenant_id",))
    }
    assert by_tenant == {"tnt_a": 30, "tnt_b": 30}
    (by_model,) = windows.read(30, START + 30, ("model", "version_id"))
    assert (by_model.labels, by_model.tally.answered) == ({"model": "minilm", "version_id": "mv_1"}, 60)


def test_seconds_that_nobody_reported_are_not_covered_and_not_zero() -> None:
    windows = RecentWindows()
    for second in range(START, START + 60):
        if second < START + 20 or second >= START + 40:
            windows.add(second, KEY, tally(10_000))
            windows.cover(second)
        windows.advance(second)
    window = one(windows, 60, START + 60)
    assert (window.tally.answered, window.covered_s) == (40, 40)


def test_without_labels_there_is_one_window_even_of_nothing() -> None:
    window = one(RecentWindows(), 60, START)
    assert (window.covered_s, window.tally) == (0, Tally())
    assert all(metric.read(window.tally, 0) is None for metric in METRICS.values())


def test_a_quiet_covered_window_has_a_rate_of_zero_and_no_percentile() -> None:
    windows = RecentWindows()
    for second in range(START, START + 30):
        windows.cover(second)
        windows.advance(second)
    window = one(windows, 30, START + 30)
    assert METRICS["requests_s"].read(window.tally, window.covered_s) == 0
    assert METRICS["total_p99_ms"].read(window.tally, window.covered_s) is None


def test_a_group_leaves_with_its_last_slice() -> None:
    windows = fed(30, KEY)
    assert windows.read(60, START + 30, ("model",))
    for second in range(START + 30, START + 200):
        windows.cover(second)
        windows.advance(second)
    assert windows.read(60, START + 200, ("model",)) == []


def test_a_late_count_is_taken_while_its_slice_is_open_and_refused_afterwards() -> None:
    windows = fed(SLICE_S + LATE_S, KEY)
    assert windows.add(START + 1, KEY, tally(90_000))
    windows.advance(START + SLICE_S + LATE_S)
    assert not windows.add(START + 1, KEY, tally(90_000))
    assert one(windows, 60, START + 20).tally.answered == SLICE_S + LATE_S + 1


def test_a_closed_slice_is_handed_over_once_with_what_was_covered() -> None:
    windows = RecentWindows()
    windows.add(START + 3, KEY, tally(10_000, 20_000))
    windows.cover(START + 3)
    (closed,) = windows.advance(START + SLICE_S + LATE_S)
    assert (closed.start, closed.covered_s) == (START, 1)
    assert decode_tally(closed.tallies[KEY]) == tally(10_000, 20_000)
    assert windows.advance(START + SLICE_S + LATE_S + 1) == []


@pytest.mark.parametrize("window_s", [0, -1, KEPT_S + 1])
def test_a_window_nobody_keeps_is_refused(window_s: float) -> None:
    with pytest.raises(ValueError, match="a window is of"):
        RecentWindows().read(window_s, START, ())


def test_an_unknown_label_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="colour"):
        RecentWindows().read(60, START, ("colour",))


@settings(max_examples=60)
@given(
    seconds=st.lists(st.lists(st.integers(1, 5_000_000), max_size=4), min_size=1, max_size=90),
    reads=st.lists(st.integers(0, 89), max_size=12),
    shuffle=st.randoms(use_true_random=False),
)
def test_a_window_is_the_same_however_often_it_was_read_and_in_what_order_it_was_fed(
    seconds: list[list[int]], reads: list[int], shuffle: random.Random
) -> None:
    watched, plain = RecentWindows(), RecentWindows()
    for second, totals in enumerate(seconds):
        for total in totals:
            watched.add(START + second, KEY, tally(total))
        for total in shuffle.sample(totals, len(totals)):
            plain.add(START + second, KEY, tally(total))
        for windows in (watched, plain):
            windows.cover(START + second)
            windows.advance(START + second)
        if second in reads:
            watched.read(30, START + second + 1, ())
    now = START + len(seconds)
    assert one(watched, 30, now) == one(plain, 30, now)
