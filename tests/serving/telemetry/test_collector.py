"""The collector: one true picture per second, however frames are split, ordered, doubled or late."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.contract import SlaClass
from serving.telemetry import collector as collector_module
from serving.telemetry.collector import IDLE_S, LAG_S, Collector
from serving.telemetry.frames import STAGES, LiveFrame, ReplicaGauge, Series, slots_of
from serving.telemetry.histogram import Histogram
from serving.telemetry.live import LiveSecond, ReplicaRow

START = 1_000


@dataclass
class Answers:
    """Total times (µs) of the requests one series answered within a frame."""

    totals: list[int]
    tenant: str = "tnt_a"
    version: str = "mv_1"
    sla_class: SlaClass = "interactive"
    failed: dict[str, int] | None = None
    pending: int = 0

    def series(self) -> Series:
        histograms = {stage: Histogram() for stage in STAGES}
        for total, histogram in itertools.product(self.totals, histograms.values()):
            histogram.record(total)
        rows = Histogram({71: len(self.totals)} if self.totals else {}, 4 * len(self.totals))
        n = len(self.totals)
        return Series(
            tenant_id=self.tenant, model="minilm", version_id=self.version, endpoint="embeddings",
            sla_class=self.sla_class, target_us=50_000, answered=n, failed=self.failed or {},
            kept=sum(t <= 50_000 for t in self.totals), rows=n, tokens=7 * n, device_us=500 * n,
            cost_micro=2 * n, shared=0, closes={"full": n} if n else {},
            slots=slots_of([*histograms.items(), ("batch_rows", rows)]), pending=self.pending,
        )  # fmt: skip


def frame(
    at: float, *answers: Answers, process: str = "gateway-1", sequence: int | None = None, epoch: int = 1
) -> LiveFrame:
    number = int(at * 1000) if sequence is None else sequence
    return LiveFrame(process, epoch, number, at, 1.0, tuple(a.series() for a in answers))


def run(frames: list[LiveFrame], until: float) -> list[LiveSecond]:
    collector = Collector()
    collector.step(START + LAG_S)
    for one in frames:
        collector.add(one, one.at)
    out = []
    now = START + LAG_S
    while now <= until + LAG_S:
        out += collector.step(now)
        now += 1
    return out


def plain(seconds: list[LiveSecond]) -> object:
    return msgspec.to_builtins(seconds)


def test_a_frame_on_the_second_counts_for_that_second() -> None:
    (second,) = run([frame(START + 1, Answers([10_000] * 20))], START + 1)
    (row,) = second.rows
    assert (second.at, row.rps, row.kept, row.target_ms, row.batch) == (START, 20, 1.0, 50, 4)
    assert row.p95 == pytest.approx(10, rel=0.02)


def test_a_frame_that_straddles_two_seconds_is_split_between_them() -> None:
    frames = [frame(START + 1.5 + i, Answers([10_000] * 20)) for i in range(-1, 3)]
    assert [s.rows[0].rps for s in run(frames, START + 3)] == [20, 20, 20]


def test_a_second_no_gateway_covers_is_a_gap_and_not_zero() -> None:
    frames = [frame(START + 1, Answers([1_000])), frame(START + 3, Answers([1_000]))]
    assert [(s.covered, len(s.rows)) for s in run(frames, START + 3)] == [(True, 1), (False, 0), (True, 1)]


def test_an_idle_series_is_zero_while_the_gateway_lives_and_is_forgotten_later() -> None:
    frames = [frame(START + 1, Answers([1_000]))]
    frames += [frame(START + i) for i in range(2, IDLE_S + 20)]
    seconds = run(frames, START + IDLE_S + 19)
    assert (seconds[5].rows[0].rps, seconds[5].rows[0].p95) == (0, pytest.approx(1, rel=0.02))
    assert (seconds[30].rows[0].p95, seconds[30].rows[0].kept) == (None, None)
    assert seconds[-1].rows == []


def test_a_frame_counts_once_however_often_it_arrives() -> None:
    one = frame(START + 1, Answers([1_000] * 5))
    assert plain(run([one, one, one], START + 1)) == plain(run([one], START + 1))


def test_a_late_frame_still_counts_in_the_window() -> None:
    collector = Collector()
    collector.step(START + LAG_S)
    collector.add(frame(START + 1, Answers([1_000]), process="gateway-2"), START + 1)
    collector.step(START + 1 + LAG_S)
    collector.add(frame(START + 1, Answers([90_000])), START + 3)
    collector.add(frame(START + 2), START + 3)
    (second,) = collector.step(START + 2 + LAG_S)
    assert second.rows[0].kept == 0.5


def test_failures_the_platform_answers_for_break_the_promise_and_a_clients_own_do_not() -> None:
    answers = Answers([1_000] * 2, failed={"deadline_unattainable": 2, "invalid_json": 9})
    (second,) = run([frame(START + 1, answers)], START + 1)
    assert second.rows[0].kept == 0.5
    assert second.rows[0].failed == {"deadline_unattainable": 2, "invalid_json": 9}


def test_versions_of_one_model_are_one_row_with_parts() -> None:
    frames = [frame(START + 1, Answers([1_000] * 3), Answers([9_000], version="mv_2"))]
    (row,) = run(frames, START + 1)[0].rows
    assert (row.rps, row.version_id, [p.rps for p in row.parts]) == (4, "mv_1", [3, 1])


def test_a_request_that_lowered_its_class_does_not_rename_an_idle_promise() -> None:
    frames = [frame(START + 1, Answers([1_000] * 3), Answers([9_000], sla_class="batch"))]
    frames += [frame(START + i) for i in range(2, 16)]
    seconds = run(frames, START + 15)
    assert {row.sla_class for second in seconds for row in second.rows} == {"interactive"}
    assert seconds[-1].rows[0].p95 is None


def test_pending_is_the_newest_word_of_each_living_gateway() -> None:
    frames = [
        frame(START + 1, Answers([], pending=9)),
        frame(START + 2, Answers([], pending=4)),
        frame(START + 2, Answers([], pending=3), process="gateway-2"),
    ]
    assert run(frames, START + 2)[-1].rows[0].pending == 7


def test_a_gauge_of_an_older_epoch_does_not_speak_for_a_replica() -> None:
    def gauge(epoch: int, queued: int) -> ReplicaGauge:
        return ReplicaGauge("rep_1", "minilm", "mv_1", epoch, queued, 1, 500_000, 10, 80, 700)

    new = LiveFrame("worker-2", 1, 1, START + 0.9, 1.0, replicas=(gauge(2, 5),))
    old = LiveFrame("worker-1", 1, 1, START + 1.0, 1.0, replicas=(gauge(1, 99),))
    for frames in ([new, old], [old, new]):
        (replica,) = run(frames, START + 1)[0].replicas
        assert (replica.queued, replica.busy) == (5, 0.5)


def test_a_replicas_efficiency_is_what_padding_leaves() -> None:
    def row(**more: int) -> ReplicaRow:
        gauge = ReplicaGauge("rep_1", "minilm", "mv_1", 1, 0, 1, 500_000, 10, 80, 700, **more)
        (replica,) = run([LiveFrame("worker-1", 1, 1, START + 0.9, 1.0, replicas=(gauge,))], START + 1)[
            0
        ].replicas
        return replica

    assert row(executed_tokens=1000).efficiency == 0.7
    assert row().efficiency is None


def test_after_a_stall_only_the_newest_seconds_are_closed() -> None:
    collector = Collector()
    collector.step(START)
    seconds = collector.step(START + 600)
    assert len(seconds) == 5


def test_a_host_with_a_wrong_clock_is_counted_when_its_frames_arrive() -> None:
    collector = Collector()
    collector.step(START + LAG_S)
    collector.add(frame(START + 5_000, Answers([1_000] * 3)), START + 1)
    (second,) = collector.step(START + 1 + LAG_S)
    assert second.rows[0].rps == 3


@given(
    totals=st.lists(st.integers(1, 500_000), min_size=1, max_size=40),
    cut=st.integers(0, 40),
    shuffle=st.randoms(use_true_random=False),
)
def test_how_counts_are_split_and_ordered_changes_nothing(
    totals: list[int], cut: int, shuffle: random.Random
) -> None:
    whole = [frame(START + 1, Answers(totals))]
    split = [
        frame(START + 1, Answers(totals[:cut]), process="gateway-1"),
        frame(START + 1, Answers(totals[cut:]), process="gateway-2"),
        frame(START + 1, process="gateway-3"),
    ]
    shuffle.shuffle(split)
    assert plain(run(split, START + 1)) == plain(run(whole, START + 1))


@given(st.lists(st.lists(st.integers(1, 500_000), max_size=5), min_size=1, max_size=30))
def test_the_sliding_window_never_keeps_a_rest(seconds: list[list[int]]) -> None:
    frames = [frame(START + 1 + i, Answers(totals)) for i, totals in enumerate(seconds)]
    frames += [frame(START + 1 + len(seconds) + i) for i in range(11)]
    last = run(frames, START + len(seconds) + 11)[-1]
    assert all(row.p50 is None and row.stages == {} and row.closes == {} for row in last.rows)


def test_what_was_counted_can_be_read_over_minutes_by_endpoint() -> None:
    collector = Collector()
    for second in range(120):
        collector.add(frame(START + second, Answers([10_000] * 2)), START + second)
        collector.step(START + second + LAG_S)
    (window,) = collector.windows.read(60, START + 120, ("model", "endpoint"))
    assert window.labels == {"model": "minilm", "endpoint": "embeddings"}
    assert window.tally.answered / window.covered_s == pytest.approx(2, rel=0.05)


def test_a_picture_of_too_many_holds_the_busiest_and_whom_somebody_watches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(collector_module, "MAX_GROUPS", 2)
    counts = {"tnt_a": 9, "tnt_b": 1, "tnt_c": 5, "tnt_d": 2}
    collector = Collector()
    collector.step(START + LAG_S)
    for second in range(1, 17):
        answers = [Answers([10_000] * count, tenant=tenant) for tenant, count in counts.items()]
        collector.add(frame(START + second, *answers), START + second)
        (picture,) = collector.step(START + second + LAG_S, watched=["tnt_b", "tnt_gone"])
    assert {row.tenant_id: row.rps for row in picture.rows} == {
        "tnt_a": 9,
        "tnt_b": 1,
        "tnt_c": 5,
        "other": 2,
    }
    assert [row.p95 is None for row in picture.rows] == [False, False, False, True]


def test_a_series_shown_anew_has_its_whole_window() -> None:
    collector, told = Collector(), Collector()
    for second in range(1, 15):
        for one in (collector, told):
            one.add(frame(START + second, Answers([10_000 * second] * 3)), START + second)
        told.step(START + second + LAG_S)
    last = collector.step(START + 14 + LAG_S)[-1]
    collector.add(frame(START + 15), START + 15)
    told.add(frame(START + 15), START + 15)
    assert last.at == START + 13
    assert plain(collector.step(START + 15 + LAG_S)) == plain(told.step(START + 15 + LAG_S))


def test_a_frame_too_late_for_its_slice_is_counted_as_late() -> None:
    collector = Collector()
    for second in range(40):
        collector.add(frame(START + second, Answers([10_000])), START + second)
        collector.step(START + second + LAG_S)
    collector.add(frame(START + 31, Answers([10_000]), process="gateway-2"), START + 39)
    assert collector.late_series == 0
    collector.add(frame(START + 19, Answers([10_000]), process="gateway-2"), START + 39)
    assert collector.late_series == 1


def test_what_replicas_said_is_handed_over_by_slice() -> None:
    collector = Collector()
    for second in range(1, 32):
        gauge = ReplicaGauge("rep_1", "minilm", "mv_1", 1, second, 1, 250_000, 10, 80, 700)
        at = START + second - 0.5
        collector.add(LiveFrame("worker-1", 1, second, at, 1.0, replicas=(gauge,)), at)
        collector.step(START + second + LAG_S)
    slices = collector.take_replica_slices()
    assert list(slices) == [START, START + 10]
    (tally,) = slices[START]
    row = tally.row()
    assert row is not None
    assert (tally.frames, tally.most_queued, row.busy, row.rows_s) == (10, 10, 0.25, 80)
    assert collector.take_replica_slices() == {}
