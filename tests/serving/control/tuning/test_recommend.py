"""The recommendation: the fastest within the tolerance, and of equals the smallest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.contract import Agreement, TuningRow
from serving.control.tuning.recommend import TIE, Tolerance, recommend, speed, why_not

EXACT = Agreement(cosine_min=1.0, cosine_mean=1.0, max_abs_error=0.0, label_agreement=1.0)


def row(index: int, rate: float, agreement: Agreement | None = EXACT, **changed) -> TuningRow:
    values = {"rows_per_s": {1: rate / 2, 32: rate}, "p50_ms": 1000.0 / rate, "memory_bytes": 100}
    return TuningRow(index=index, ok=True, agreement=agreement, **(values | changed))


shares = st.one_of(st.none(), st.floats(0.0, 1.0))
errors = st.one_of(st.none(), st.floats(0.0, 10.0))
agreements = st.builds(
    Agreement, cosine_min=shares, cosine_mean=shares, max_abs_error=errors, label_agreement=shares
)
measured = st.tuples(
    st.floats(1.0, 1e4), agreements, st.integers(1, 1 << 32), st.booleans(), st.integers(1, 4)
)
tolerances = st.builds(Tolerance, shares, errors, shares)


@given(st.lists(measured, min_size=1, max_size=12), tolerances, st.sampled_from(["throughput", "latency"]))
def test_it_is_the_fastest_within_the_tolerance(found: list, tolerance: Tolerance, goal) -> None:
    rows = [
        row(index, rate, agreement, memory_bytes=memory)
        if ok
        else TuningRow(index=index, ok=False, reason="x")
        for index, (rate, agreement, memory, ok, _) in enumerate(found)
    ]
    options = [{"threads": threads} for *_, threads in found]
    chosen = recommend(rows, options, tolerance, goal).index
    fit = [each for each in rows if not why_not(each, tolerance)]
    if chosen is None:
        assert fit == []
        return
    best = max(speed(each, options[each.index], goal) for each in fit)
    assert rows[chosen] in fit
    assert speed(rows[chosen], options[chosen], goal) >= best * (1 - TIE)
    tied = [each for each in fit if speed(each, options[each.index], goal) >= best * (1 - TIE)]
    assert rows[chosen].memory_bytes == min(each.memory_bytes for each in tied)


@given(st.lists(measured, min_size=1, max_size=6), tolerances)
def test_a_stricter_tolerance_never_admits_more(found: list, tolerance: Tolerance) -> None:
    rows = [row(index, rate, agreement) for index, (rate, agreement, *_) in enumerate(found)]
    stricter = Tolerance(1.0, 0.0, 1.0)
    for each in rows:
        if tolerance.min_cosine is not None and not why_not(each, stricter):
            assert not why_not(each, tolerance)


def test_the_gain_is_over_the_reference() -> None:
    rows = [row(0, 100.0), row(1, 170.0, Agreement(cosine_min=0.9999))]
    found = recommend(rows, [{}, {}], Tolerance())
    assert (found.index, found.gain) == (1, pytest.approx(1.7))


def test_throughput_is_counted_by_thread() -> None:
    rows = [row(0, 100.0), row(1, 150.0)]
    assert recommend(rows, [{"threads": 1}, {"threads": 2}], Tolerance()).index == 0
    assert recommend(rows, [{"threads": 1}, {"threads": 2}], Tolerance(), "latency").index == 1


@pytest.mark.parametrize(
    ("agreement", "tolerance", "word"),
    [
        (Agreement(cosine_min=0.875), Tolerance(), "cosine"),
        (Agreement(max_abs_error=0.2), Tolerance(None, 0.1), "error"),
        (Agreement(label_agreement=0.5), Tolerance(None, None, 0.9), "labels"),
        (Agreement(max_abs_error=0.2), Tolerance(), "no bound"),
        (Agreement(label_agreement=0.5), Tolerance(), "no bound"),
        (Agreement(max_abs_error=0.0), Tolerance(), ""),
    ],
)
def test_why_a_candidate_does_not_qualify(agreement: Agreement, tolerance: Tolerance, word: str) -> None:
    said = why_not(row(1, 10.0, agreement), tolerance)
    assert word in said and bool(said) == bool(word)
