"""What a request may take beyond its prediction follows what its version's requests took lately."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from serving.gateway.margins import FIRST, LEAST, MARGIN, Margins

NOW = 1_767_225_600.0


def test_before_the_first_answer_nobody_knows() -> None:
    assert Margins().of("mv_a", NOW) == FIRST


@given(st.lists(st.floats(0.01, 1000.0), min_size=1, max_size=30))
def test_whoever_comes_next_may_take_what_the_dearest_took_and_a_fifth(ratios: list[float]) -> None:
    margins = Margins()
    for ratio in ratios:
        margins.learn("mv_a", ratio, NOW)
    most = max(ratios) * MARGIN
    assert max(LEAST, most * 0.97) <= margins.of("mv_a", NOW) <= max(LEAST, most)
    assert margins.of("mv_b", NOW) == FIRST


def test_a_device_that_stood_still_is_forgotten_in_minutes_though_nobody_is_answered() -> None:
    margins = Margins()
    margins.learn("mv_a", 10_000.0, NOW)
    assert margins.of("mv_a", NOW - 5.0) == 12_000.0, "a clock that is set back"
    assert margins.of("mv_a", NOW + 60.0) == 3_000.0
    assert margins.of("mv_a", NOW + 600.0) == LEAST


def test_answers_alone_fade_it_too() -> None:
    margins = Margins()
    margins.learn("mv_a", 100.0, NOW)
    for _ in range(1000):
        margins.learn("mv_a", 1.0, NOW)
    assert 40.0 < margins.of("mv_a", NOW) < 50.0
