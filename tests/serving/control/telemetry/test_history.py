"""History: the same numbers as live ones, gaps as gaps, bounded, and nobody else's."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from hypothesis import given
from hypothesis import strategies as st

from serving.control.telemetry import history
from serving.control.telemetry.history import Question, Unanswerable, read, step_for
from serving.control.telemetry.store import write
from serving.telemetry.metrics import METRICS
from serving.telemetry.windows import Slice
from tenants.scoping import all_tenants, tenant_scope
from tests.serving.control.telemetry.conftest import HOUR, key, piece, tally

NOW = HOUR + 3600.0


@pytest.fixture(autouse=True)
def everything() -> Iterator[None]:
    with all_tenants("a test"):
        yield


def ask(
    *metrics: str, since: float = HOUR, until: float = HOUR + 60, step_s: int = 10, **more: object
) -> history.Answer:
    return read(Question(metrics, since, until, step_s, **more), NOW)  # type: ignore[arg-type]


def test_points_are_merged_slices_and_what_nobody_reported_is_a_gap(db: None) -> None:
    write(10, piece(HOUR, *[10_000] * 20))
    write(10, piece(HOUR + 20))
    answer = ask("requests_s", "total_p95_ms", until=HOUR + 40)
    (series,) = answer.series
    assert answer.starts == [HOUR, HOUR + 10, HOUR + 20, HOUR + 30]
    assert answer.covered == [1, 0, 1, 0]
    assert series.values["requests_s"] == [2, None, 0, None]
    assert series.values["total_p95_ms"] == [pytest.approx(10, rel=0.01), None, None, None]


def test_a_point_half_reported_says_so_and_its_rate_is_of_what_was_reported(db: None) -> None:
    write(10, piece(HOUR, *[1_000] * 20, covered_s=5))
    answer = ask("requests_s", until=HOUR + 10)
    assert (answer.covered, answer.series[0].values["requests_s"]) == ([0.5], [4])


def test_percentiles_of_a_minute_are_of_its_requests_and_not_of_its_slices(db: None) -> None:
    for number in range(6):
        write(10, piece(HOUR + 10 * number, *[1_000] * 99, 900_000))
    (series,) = ask("total_p99_ms", step_s=60).series
    assert series.values["total_p99_ms"] == [pytest.approx(1, rel=0.01)]


def test_a_coarse_slice_is_read_where_there_is_one_and_finer_ones_where_not(db: None) -> None:
    write(10, piece(HOUR, *[1_000] * 5))
    write(60, piece(HOUR, *[1_000] * 5, covered_s=60))
    write(10, piece(HOUR + 60, *[1_000] * 7))
    answer = ask("answered_s", step_s=60, until=HOUR + 120)
    assert answer.covered == [1, pytest.approx(1 / 6, abs=0.01)]
    assert answer.series[0].values["answered_s"] == [pytest.approx(5 / 60, rel=0.01), 0.7]


def test_a_slice_that_cannot_be_read_counts_nothing_and_spoils_nothing(db: None) -> None:
    write(10, piece(HOUR, *[1_000] * 5))
    write(10, Slice(HOUR + 10, 10, {key(): b"\xc1"}))
    (series,) = ask("answered_s", until=HOUR + 20).series
    assert series.values["answered_s"] == [0.5, 0]


def test_labels_split_and_select(db: None) -> None:
    write(10, piece(HOUR, *[1_000] * 9))
    write(10, piece(HOUR + 10, *[1_000] * 3, of=key("tnt_b")))
    by_tenant = ask("answered_s", by=("tenant_id",)).series
    assert [one.labels["tenant_id"] for one in by_tenant] == ["tnt_a", "tnt_b"]
    (only,) = ask("answered_s", by=("model",), only={"tenant_id": "tnt_b"}).series
    assert only.values["answered_s"][:2] == [0, 0.3]


def test_a_tenant_reads_its_own_rows_only(db: None) -> None:
    write(10, piece(HOUR, *[1_000] * 9))
    write(10, piece(HOUR + 10, *[1_000] * 3, of=key("tnt_b")))
    with tenant_scope("tnt_b"):
        (series,) = ask("answered_s", by=("tenant_id",)).series
    assert series.labels == {"tenant_id": "tnt_b"}


def test_more_groups_than_a_chart_can_show_are_counted_and_left_out(
    db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "MAX_SERIES", 1)
    write(10, piece(HOUR, *[1_000] * 9))
    write(10, piece(HOUR + 10, *[1_000] * 3, of=key("tnt_b")))
    answer = ask("answered_s", by=("tenant_id",))
    assert ([one.labels["tenant_id"] for one in answer.series], answer.left_out) == (["tnt_a"], 1)


def test_a_question_costs_a_bounded_number_of_statements(db: None) -> None:
    for number in range(12):
        write(10, piece(HOUR + 10 * number, 1_000))
    with CaptureQueriesContext(
        connection,
    ) as captured:
        ask("total_p95_ms", until=HOUR + 120)
    assert len(captured) <= 2


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"metrics": ("colour",)}, "metric"),
        ({"by": ("colour",)}, "by"),
        ({"until": HOUR}, "since"),
        ({"step_s": 15}, "step"),
        ({"until": HOUR + 10 * 1001}, "step"),
    ],
)
def test_a_question_that_makes_no_sense_says_which_part(wrong: dict[str, object], field: str) -> None:
    question = {"metrics": ("requests_s",), "since": HOUR, "until": HOUR + 60, "step_s": 10} | wrong
    with pytest.raises(Unanswerable) as refused:
        read(Question(**question), NOW)  # type: ignore[arg-type]
    assert refused.value.field == field


def test_too_many_rows_are_refused_with_advice(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MAX_ROWS", 1)
    write(10, piece(HOUR, 1_000))
    write(10, piece(HOUR + 10, 1_000))
    with pytest.raises(Unanswerable, match="narrow it"):
        ask("answered_s")


def test_the_step_chosen_is_still_kept_and_gives_a_chart_of_few_points() -> None:
    now = HOUR + 400 * 86_400.0
    assert step_for(now - 900, now, now) == 10
    assert step_for(now - 7 * 86_400, now, now) == 3600
    assert step_for(now - 3 * 86_400, now - 3 * 86_400 + 600, now) == 60
    assert step_for(now - 30 * 86_400, now - 30 * 86_400 + 600, now) == 3600


@given(
    totals=st.lists(st.integers(100, 60_000_000), min_size=1, max_size=200),
    cuts=st.lists(st.integers(0, 200), max_size=4),
    quantile=st.sampled_from([("p50", 0.5), ("p95", 0.95), ("p99", 0.99)]),
)
def test_percentiles_of_merged_parts_are_within_a_percent_of_the_exact_ones(
    totals: list[int], cuts: list[int], quantile: tuple[str, float]
) -> None:
    edges = sorted({0, len(totals), *(min(cut, len(totals)) for cut in cuts)})
    merged = tally()
    for first, last in zip(edges, edges[1:], strict=False):
        merged.add(tally(*totals[first:last]))
    name, share = quantile
    exact = sorted(totals)[max(1, math.ceil(share * len(totals))) - 1] / 1000
    assert METRICS[f"total_{name}_ms"].read(merged, 10) == pytest.approx(exact, rel=0.0101)
