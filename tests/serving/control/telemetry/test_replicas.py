"""Replicas over time: what they said, summed and read back; silence is no zero."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from serving.control.telemetry import replicas, retention
from serving.control.telemetry.history import Unanswerable
from serving.control.telemetry.models import ReplicaSlice
from serving.control.telemetry.replicas import ReplicaStore, read_replicas, roll_replicas, write_replicas
from serving.telemetry.replica_tally import ReplicaTally
from tests.serving.control.telemetry.conftest import HOUR

BUSY = ("replica_busy_share",)


def said(busy_share: float, replica_id: str = "rep_a", **more: Any) -> ReplicaTally:
    return ReplicaTally(
        replica_id, "minilm", "mv_1", 10_000_000, round(busy_share * 10_000_000), frames=10, **more
    )


def busy(since: float, until: float, step_s: int) -> list[float | None]:
    (series,) = read_replicas(BUSY, since, until, until, step_s).series
    return series.values["replica_busy_share"]


def test_what_a_replica_said_is_read_back_and_silence_is_a_gap(db: None) -> None:
    write_replicas(10, HOUR, [said(0.5)])
    write_replicas(10, HOUR, [said(0.9)])
    write_replicas(10, HOUR + 20, [said(0)])
    assert busy(HOUR, HOUR + 30, 10) == [0.5, None, 0]


def test_minutes_are_sums_and_the_newest_seconds_join_them(db: None) -> None:
    for number in range(9):
        write_replicas(10, HOUR + 10 * number, [said(0.25 if number % 2 else 0.75, most_memory_bytes=number)])
    roll_replicas(HOUR + 119.0)
    roll_replicas(HOUR + 119.0)
    assert ReplicaSlice.objects.filter(resolution_s=60).count() == 1
    assert ReplicaSlice.objects.get(resolution_s=60).most_memory_bytes == 5
    assert busy(HOUR, HOUR + 120, 60) == [0.5, pytest.approx(0.583, abs=0.001)]
    assert busy(HOUR, HOUR + 120, 120) == [pytest.approx(0.528, abs=0.001)]


def test_the_busiest_come_first_and_more_are_counted(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "MAX_SERIES", 1)
    write_replicas(10, HOUR, [said(0.1, "rep_a"), said(0.9, "rep_b")])
    answer = read_replicas(BUSY, HOUR, HOUR + 10, HOUR + 10, 10)
    assert ([one.replica_id for one in answer.series], answer.left_out) == (["rep_b"], 1)


def test_what_could_not_be_written_waits(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    store, now = ReplicaStore(), datetime.fromtimestamp(HOUR, UTC)

    def refuse(*given: object) -> None:
        raise OSError("away")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="away"):
        patch.setattr(replicas, "write_replicas", refuse)
        store.step({HOUR: [said(0.5)]}, now)
    store.step({}, now)
    assert ReplicaSlice.objects.count() == 1


def test_old_rows_go(db: None) -> None:
    write_replicas(10, HOUR, [said(0.5)])
    retention.prune(datetime.fromtimestamp(HOUR + 3 * 86_400, UTC))
    assert not ReplicaSlice.objects.exists()


@pytest.mark.parametrize(
    ("metric", "until", "step_s", "field"),
    [
        ("colour", HOUR + 10, 10, "metric"),
        ("replica_rows_s", HOUR, 10, "since"),
        ("replica_rows_s", HOUR + 10, 7, "step"),
    ],
)
def test_a_question_that_makes_no_sense_says_which_part(
    metric: str, until: int, step_s: int, field: str
) -> None:
    with pytest.raises(Unanswerable) as refused:
        read_replicas((metric,), HOUR, until, HOUR, step_s)
    assert refused.value.field == field
