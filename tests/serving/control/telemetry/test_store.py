"""Stored slices: each once, whole, summed to minutes and hours, dropped by the day."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from hypothesis import given
from hypothesis import strategies as st

from serving.control.telemetry import retention, rollup
from serving.control.telemetry.models import MetricSlice, MetricSpan
from serving.control.telemetry.partitions import DAY_S
from serving.control.telemetry.rollup import RollUp
from serving.control.telemetry.store import MAX_WAITING, SliceStore, write, write_rows
from serving.telemetry.tally import Tally, decode_tally, encode_tally
from serving.telemetry.windows import Slice
from tenants.scoping import all_tenants, tenant_scope
from tests.serving.control.telemetry.conftest import HOUR, key, piece, tally

RESERVE_S = 600


def at(second: float) -> datetime:
    return datetime.fromtimestamp(second, UTC)


def stored(resolution_s: int) -> dict[int, Tally]:
    with all_tenants("a test"):
        rows = MetricSlice.objects.filter(resolution_s=resolution_s).values_list("start", "tally")
        return {start: decode_tally(bytes(raw)) for start, raw in rows}


def rows_of(resolution_s: int) -> list[str]:
    with all_tenants("a test"):
        rows = MetricSlice.objects.filter(resolution_s=resolution_s)
        return sorted(rows.values_list("tenant_id", flat=True))


def spans(resolution_s: int) -> dict[int, int]:
    return dict(MetricSpan.objects.filter(resolution_s=resolution_s).values_list("start", "covered_s"))


def test_a_slice_is_written_once_whoever_tries_again(db: None) -> None:
    assert write(10, piece(HOUR, 1_000, 2_000))
    assert not write(10, piece(HOUR, 1_000, 2_000, 3_000))
    assert stored(10) == {HOUR: tally(1_000, 2_000)}


def test_a_quiet_slice_leaves_a_span_and_no_rows(db: None) -> None:
    write(10, piece(HOUR))
    assert (spans(10), stored(10)) == ({HOUR: 10}, {})


def test_minutes_and_hours_are_the_sums_of_their_parts(db: None) -> None:
    for start in range(HOUR, HOUR + 3600, 600):
        write(10, piece(start, 1_000 + start % 7, covered_s=7))
    assert RollUp(60.0).step(at(HOUR + 3600 + RESERVE_S)) == 7
    assert spans(60) == dict.fromkeys(range(HOUR, HOUR + 3600, 600), 7)
    assert spans(3600) == {HOUR: 42}
    assert stored(3600)[HOUR].answered == 6


def test_a_minute_waits_until_nothing_can_join_it(db: None) -> None:
    write(10, piece(HOUR, 1_000))
    assert RollUp(60.0).step(at(HOUR + 60 + rollup.SETTLED_S - 1)) == 0
    assert RollUp(60.0).step(at(HOUR + 60 + rollup.SETTLED_S)) == 1
    assert RollUp(60.0).step(at(HOUR + 60 + rollup.SETTLED_S)) == 0


def test_a_restarted_controller_goes_on_where_the_rows_end(db: None) -> None:
    write(10, piece(HOUR, 1_000))
    RollUp(60.0).step(at(HOUR + 200))
    write(10, piece(HOUR + 600, 5_000))
    RollUp(60.0).step(at(HOUR + 900))
    assert sorted(spans(60)) == [HOUR, HOUR + 600]


def test_sums_that_take_long_go_on_step_by_step_and_count_only_when_whole(db: None) -> None:
    for number in range(9):
        write(10, piece(HOUR + 10 * (number % 6), 1_000, of=key(f"tnt_{number}")))
    for number in range(6, 9):
        write_rows(10, HOUR + 10 * (number % 6), piece(0, 1_000, of=key(f"tnt_{number}")).tallies)
    sums, steps = RollUp(budget_s=0), 1
    while not sums.step(at(HOUR + 200)):
        steps += 1
        assert spans(60) == {}
    assert (steps, spans(60)) == (3, {HOUR: 60})
    assert len(rows_of(60)) == 9


def test_a_sum_that_was_broken_off_is_finished_by_the_next_controller(db: None) -> None:
    for number in range(6):
        write_rows(10, HOUR, piece(0, 1_000, of=key(f"tnt_{number}")).tallies)
    write(10, piece(HOUR))
    RollUp(budget_s=0).step(at(HOUR + 200))
    assert len(rows_of(60)) == 4
    assert RollUp().step(at(HOUR + 200)) == 1
    assert len(rows_of(60)) == 6


def test_what_could_not_be_written_is_written_later_and_bounded(
    db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SliceStore()
    store.take(piece(HOUR + 10 * i, 1_000) for i in range(MAX_WAITING + 5))

    def refuse(resolution_s: int, one: Slice) -> bool:
        raise DatabaseError("away")

    with monkeypatch.context() as patch:
        patch.setattr("serving.control.telemetry.store.write", refuse)
        with pytest.raises(DatabaseError):
            store.step()
    assert store.step() == MAX_WAITING
    assert min(spans(10)) == HOUR + 50


def test_old_days_are_dropped_and_newer_ones_stay(db: None, settings: Any) -> None:
    settings.METRICS_10S_KEPT_HOURS = 24
    write(10, piece(HOUR, 1_000))
    write(10, piece(HOUR + 3 * DAY_S, 1_000))
    assert retention.prune(at(HOUR + 3 * DAY_S)) == {"metric_days": 1}
    assert (list(stored(10)), list(spans(10))) == ([HOUR + 3 * DAY_S], [HOUR + 3 * DAY_S])
    assert retention.prune(at(HOUR + 3 * DAY_S)) == {"metric_days": 0}


def test_a_tenant_sees_its_own_slices_and_no_partition_can_be_read_past_the_table(db: None) -> None:
    write(10, piece(HOUR, 1_000))
    write(10, piece(HOUR + 10, 1_000, of=key("tnt_b")))
    with tenant_scope("tnt_a"), connection.cursor() as cursor:
        cursor.execute("SELECT DISTINCT tenant_id FROM control_metricslice")
        assert cursor.fetchall() == [("tnt_a",)]
        for part in ("control_metricslice_10", f"control_metricslice_10_{HOUR // DAY_S}"):
            with transaction.atomic():
                try:
                    cursor.execute(f"SELECT count(*) FROM {part}")
                    assert cursor.fetchall() == [(0,)]
                except DatabaseError as error:
                    assert "permission denied" in str(error)
                    transaction.set_rollback(True)


@given(
    parts=st.lists(
        st.tuples(st.sampled_from("ab"), st.lists(st.integers(1, 60_000_000), min_size=1, max_size=5)),
        max_size=12,
    ),
    cut=st.integers(0, 12),
)
def test_summing_in_any_split_gives_the_same(parts: list[tuple[str, list[int]]], cut: int) -> None:
    encoded = [(key(name), encode_tally(tally(*totals))) for name, totals in parts]
    first, second = rollup.merged(encoded[:cut]), rollup.merged(encoded[cut:])
    twice = rollup.merged([*first.items(), *second.items()])
    once = rollup.merged(encoded)
    assert {k: decode_tally(raw) for k, raw in twice.items()} == {
        k: decode_tally(raw) for k, raw in once.items()
    }
