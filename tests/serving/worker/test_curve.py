"""The cost curve is found again from points that follow it, and survives points that do not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.contract import MeasuredPoint
from serving.worker.curve import fit

SIZES = [(1, 8), (1, 32), (4, 48), (8, 96), (1, 128), (16, 192), (8, 256), (32, 384), (8, 512)]


def points(a_ms: float, c_ms: float) -> list[MeasuredPoint]:
    return [
        MeasuredPoint(rows=rows, tokens=tokens, execute_ms=a_ms + c_ms * tokens) for rows, tokens in SIZES
    ]


@given(st.floats(0.1, 20.0), st.floats(0.001, 2.0))
def test_exact_points_give_their_curve_back(a_ms: float, c_ms: float) -> None:
    curve = fit(points(a_ms, c_ms))
    assert curve.a_ms == pytest.approx(a_ms, rel=0.02, abs=0.02)
    assert curve.c_ms_per_token == pytest.approx(c_ms, rel=0.02)
    assert curve.residual_p95_ms < 0.1 * a_ms + 0.1


def test_one_disturbed_measurement_does_not_bend_the_curve() -> None:
    disturbed = points(3.5, 0.225)
    disturbed[4] = MeasuredPoint(rows=1, tokens=128, execute_ms=200.0)
    curve = fit(disturbed)
    assert curve.a_ms == pytest.approx(3.5, rel=0.25)
    assert curve.c_ms_per_token == pytest.approx(0.225, rel=0.15)


@given(st.lists(st.tuples(st.integers(1, 64), st.integers(1, 512), st.floats(0, 1e4)), min_size=1))
def test_no_points_make_a_negative_coefficient(raw: list[tuple[int, int, float]]) -> None:
    curve = fit([MeasuredPoint(rows=rows, tokens=tokens, execute_ms=ms) for rows, tokens, ms in raw])
    assert min(curve.a_ms, curve.b_ms_per_row, curve.c_ms_per_token, curve.residual_p95_ms) >= 0.0


def test_one_batch_size_is_enough() -> None:
    curve = fit([MeasuredPoint(rows=4, tokens=4, execute_ms=8.0)])
    assert curve.a_ms + 4 * (curve.b_ms_per_row + curve.c_ms_per_token) == pytest.approx(8.0, rel=0.01)


def test_nothing_measured_is_an_error() -> None:
    with pytest.raises(ValueError, match="no points"):
        fit([])
