"""Promises over a span: what was kept, what is left of the error budget and how long it lasts, worst first."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from serving.control.telemetry.promises import attainment, budget_of, recent_s
from serving.control.telemetry.store import write
from serving.telemetry.frames import slots_of
from serving.telemetry.histogram import Histogram
from serving.telemetry.tally import Tally, encode_tally
from serving.telemetry.windows import SeriesKey, Slice
from tenants.scoping import all_tenants
from tests.serving.control.telemetry.conftest import HOUR, key

DAY_S = 86_400.0


@pytest.fixture(autouse=True)
def everything() -> Iterator[None]:
    with all_tenants("a test"):
        yield


def counts(answered: int, kept: int, failed: dict[str, int] | None = None) -> Tally:
    histogram = Histogram()
    for _ in range(answered):
        histogram.record(10_000)
    return Tally(answered=answered, kept=kept, failed=failed or {}, slots=slots_of([("total", histogram)]))


def stored(start: int, of: SeriesKey, tally: Tally) -> Slice:
    return Slice(start, 10, {of: encode_tally(tally)})


def test_half_of_the_budget_is_left_when_half_of_what_may_be_late_was_late() -> None:
    budget = budget_of(counts(1000, 995), counts(100, 100), DAY_S, 0.99)
    assert budget.left_share == pytest.approx(0.5)
    assert (budget.burn, budget.lasts_s) == (0, None)


def test_a_budget_that_burns_lasts_as_long_as_its_rest_does_at_that_rate() -> None:
    budget = budget_of(counts(1000, 995), counts(100, 90), DAY_S, 0.99)
    assert budget.burn == pytest.approx(10)
    assert budget.lasts_s == pytest.approx(0.5 * DAY_S / 10)


def test_an_overdrawn_budget_lasts_no_longer_and_says_by_how_much() -> None:
    budget = budget_of(counts(100, 97), counts(10, 10), DAY_S, 0.99)
    assert budget.left_share == pytest.approx(-2)
    assert budget.lasts_s == 0


def test_without_promised_requests_nothing_is_known() -> None:
    budget = budget_of(counts(0, 0, {"model_not_found": 3}), Tally(), DAY_S, 0.99)
    assert (budget.left_share, budget.burn, budget.lasts_s) == (None, None, None)


def test_the_present_rate_is_that_of_a_twelfth_of_the_span_and_of_an_hour_at_most() -> None:
    assert [recent_s(span) for span in (600, 900, 6 * 3600, 7 * DAY_S)] == [60, 75, 1800, 3600]


def test_each_tenant_and_model_is_a_row_and_the_least_budget_left_comes_first(db: None) -> None:
    write(10, stored(HOUR, key("tnt_a"), counts(100, 100)))
    write(10, stored(HOUR + 10, key("tnt_b"), counts(100, 98)))
    write(10, stored(HOUR + 3500, key("tnt_b"), counts(100, 90)))
    write(10, stored(HOUR + 20, key("tnt_b", "other"), counts(0, 0, {"model_not_found": 9})))
    found = attainment(HOUR, HOUR + 3600, HOUR + 3600)
    assert [(row.tenant_id, row.model, row.requests) for row in found.rows] == [
        ("tnt_b", "minilm", 200),
        ("tnt_a", "minilm", 100),
    ]
    assert (found.objective, found.covered_s) == (0.99, 40)
    worst, best = found.rows
    assert worst.budget.left_share == pytest.approx(1 - 0.06 / 0.01)
    assert worst.budget.burn == pytest.approx(10), "of its last five minutes alone"
    assert (best.budget.left_share, best.figures["kept_share"]) == (1, 1)
    assert best.figures["total_p95_ms"] == pytest.approx(10, rel=0.01)


def test_a_past_span_takes_nothing_of_what_came_after_it(db: None) -> None:
    write(60, stored(HOUR + 60, key(), counts(10, 10)))
    write(60, stored(HOUR + 120, key(), counts(10, 0)))
    write(3600, stored(HOUR, key(), counts(20, 10)))
    (row,) = attainment(HOUR, HOUR + 120, HOUR + 90_000).rows
    assert row.requests == 10
    (row,) = attainment(HOUR - 60, HOUR + 3600, HOUR + 3600).rows
    assert row.requests == 20, "counted once, though its hour and its minutes are stored"
