"""Windows of hours: sums of stored minutes that slide, the same as summing anew."""

from __future__ import annotations

import random

import pytest

from serving.control.telemetry.long_windows import MAX_WINDOW_S, AnyWindows
from serving.control.telemetry.store import write
from serving.telemetry.tally import Tally
from serving.telemetry.windows import RecentWindows, Window
from tests.serving.control.telemetry.conftest import HOUR, key, piece

BY = ("tenant_id",)


def windows() -> AnyWindows:
    return AnyWindows(RecentWindows())


def answered(found: list[Window]) -> dict[str, int]:
    return {window.labels["tenant_id"]: window.tally.answered for window in found}


def test_a_window_of_an_hour_sums_its_stored_minutes(db: None) -> None:
    for minute in range(60):
        write(60, piece(HOUR + 60 * minute, 1_000, 2_000, covered_s=60))
    (window,) = windows().read(3600, HOUR + 3600, ())
    assert (window.tally.answered, window.covered_s) == (120, 3600)


def test_whole_hours_are_read_where_they_are_stored_and_left_minute_by_minute(db: None) -> None:
    for minute in range(120):
        write(60, piece(HOUR + 60 * minute, 1_000, covered_s=60))
    write(3600, piece(HOUR, *[1_000] * 60, covered_s=3600))
    read = windows()
    assert answered(read.read(7200, HOUR + 7200, BY)) == {"tnt_a": 120}
    assert answered(read.read(7200, HOUR + 7200 + 600, BY)) == {"tnt_a": 110}


def test_sliding_is_the_same_as_reading_anew(db: None) -> None:
    rng = random.Random(5)
    sliding = windows()
    for minute in range(150):
        start, tenant = HOUR + 60 * minute, rng.choice(["tnt_a", "tnt_b"])
        if rng.random() < 0.8:
            totals = [rng.randint(1, 90_000) for _ in range(rng.randint(0, 3))]
            write(60, piece(start, *totals, covered_s=rng.randint(1, 60), of=key(tenant)))
        if minute % 7 == 0:
            found = sliding.read(3600, start + 60, BY)
            assert sorted(found, key=str) == sorted(windows().read(3600, start + 60, BY), key=str)


def test_a_group_leaves_with_its_last_minute_and_everything_is_one_window_of_nothing(db: None) -> None:
    write(60, piece(HOUR, 1_000, covered_s=60))
    read = windows()
    assert answered(read.read(3600, HOUR + 60, BY)) == {"tnt_a": 1}
    assert read.read(3600, HOUR + 7200, BY) == []
    (window,) = read.read(3600, HOUR + 7200, ())
    assert (window.tally, window.covered_s) == (Tally(), 0)


def test_short_windows_are_the_recent_ones(db: None) -> None:
    recent = RecentWindows()
    recent.cover(HOUR)
    (window,) = AnyWindows(recent).read(60, HOUR + 1, ())
    assert window.covered_s == 1


def test_what_nobody_keeps_is_refused() -> None:
    with pytest.raises(ValueError, match="a window is of"):
        windows().read(MAX_WINDOW_S + 1, HOUR, ())
    with pytest.raises(ValueError, match="colour"):
        windows().read(3600, HOUR, ("colour",))
