"""Merges the frames of every process into one picture per second. Pure: frames and `now` in, data out.

A second is closed `LAG_S` after it ended, so that frames which straddle it have arrived. Rates belong to the
second itself (a frame is split over the seconds it covers); percentiles, kept share, batch and stage figures
slide over the last `WINDOW_S` seconds. The order in which frames arrive, and how counts are split over
processes, changes nothing. A second no gateway covered is marked, never reported as zero.

What was counted goes to `windows` besides, where longer spans are summed; what is too late for them is counted.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from serving.contract import SlaClass
from serving.telemetry.frames import LiveFrame, ReplicaGauge, Series
from serving.telemetry.tally import Rates, Tally, significant
from serving.telemetry.windows import RecentWindows, SeriesKey, Slice

WINDOW_S = 10
LAG_S = 1.25
IDLE_S = 300
"""A series without traffic is shown as idle this long, then forgotten."""
PRESENT_S = 3.5
"""Gauges (pending, replicas) older than this are no longer the present."""
MAX_CATCH_UP_S = 5
"""After a stall only the newest seconds are closed; the jump is a gap in the charts."""
MAX_SKEW_S = 30.0
SEEN_SEQUENCES = 128
_CLASSES: tuple[SlaClass, ...] = ("interactive", "standard", "batch")


class LiveKey(NamedTuple):
    """A live series: its endpoints are one."""

    tenant_id: str
    model: str
    version_id: str
    sla_class: SlaClass


class LiveRow(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One series in one second. Rates are per second; times in ms; shares 0–1; None where nothing was."""

    tenant_id: str
    model: str
    version_id: str
    sla_class: SlaClass
    target_ms: float
    rps: float
    failed: dict[str, float] = {}
    rows_s: float = 0.0
    tokens_s: float = 0.0
    device_ms_s: float = 0.0
    cost_micro_s: float = 0.0
    pending: int = 0
    kept: float | None = None
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    batch: float | None = None
    shared: float | None = None
    stages: dict[str, float] = {}
    stages_p95: dict[str, float] = {}
    closes: dict[str, float] = {}
    parts: list[LiveRow] = []
    """The versions and classes behind a row, when there is more than one."""


class ReplicaRow(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One replica now. `busy` is the share of its device's time it used."""

    replica_id: str
    model: str
    version_id: str
    queued: int
    running: int
    busy: float
    batches_s: float
    rows_s: float
    tokens_s: float
    cost_error: float | None = None
    """Relative error of predicted execution times, 95th percentile."""
    efficiency: float | None = None
    """Real tokens ÷ executed tokens: what padding leaves."""
    memory_bytes: int = 0


class LiveSecond(msgspec.Struct, kw_only=True):
    at: int
    """Unix seconds of its start."""
    covered: bool
    """Whether any gateway's frames cover this second."""
    rows: list[LiveRow]
    replicas: list[ReplicaRow]


@dataclass(slots=True)
class _SeriesState:
    seconds: dict[int, Tally] = field(default_factory=dict)
    rates: dict[int, Rates] = field(default_factory=dict)
    window: Tally = field(default_factory=Tally)
    target_us: int = 0
    target_at: float = 0.0
    last_active_at: float = 0.0


@dataclass(slots=True)
class _ProcessState:
    seen: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=SEEN_SEQUENCES))
    covered: dict[int, float] = field(default_factory=dict)
    gauges_at: tuple[int, float] = (-1, 0.0)
    pending: dict[LiveKey, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Gauge:
    row: ReplicaGauge
    at: float
    window_s: float


class Collector:
    """Feed it with `add`, ask it with `step`. Memory is bounded by series × `WINDOW_S`."""

    def __init__(self) -> None:
        self._series: dict[LiveKey, _SeriesState] = {}
        self._processes: dict[str, _ProcessState] = {}
        self._gauges: dict[str, _Gauge] = {}
        self._closed: int | None = None
        self.windows = RecentWindows()
        self.late_series = 0
        """Series of frames that came too late for their slice. Charts show less than was; bills do not."""
        self._slices: list[Slice] = []

    def add(self, frame: LiveFrame, now: float) -> None:
        """Take in one frame. Duplicates change nothing; a frame older than the window is dropped."""
        process = self._processes.setdefault(frame.process, _ProcessState())
        if (frame.epoch, frame.sequence) in process.seen:
            return
        process.seen.append((frame.epoch, frame.sequence))
        at = frame.at if abs(frame.at - now) <= MAX_SKEW_S else now
        if self._closed is not None and at <= self._closed - WINDOW_S:
            self.late_series += len(frame.series)
            return
        self._add_series(process, frame, at)
        self._add_gauges(frame, at)

    def step(self, now: float) -> list[LiveSecond]:
        """Close every second that ended `LAG_S` ago, oldest first."""
        newest = math.floor(now - 1 - LAG_S)
        if self._closed is None:
            self._start(newest)
        assert self._closed is not None
        skipped = max(self._closed, newest - MAX_CATCH_UP_S)
        while self._closed < skipped:
            self._slide(self._closed + 1)
        out = []
        while self._closed < newest:
            self._slide(self._closed + 1)
            out.append(self._picture(self._closed))
        self._forget()
        return out

    def take_slices(self) -> list[Slice]:
        """The slices that closed since the last take, oldest first."""
        taken, self._slices = self._slices, []
        return taken

    def _start(self, newest: int) -> None:
        """Begin with the window that was already received; what is older never counts."""
        first = newest - WINDOW_S
        for state in self._series.values():
            state.seconds = {s: tally for s, tally in state.seconds.items() if s >= first}
        for second in range(first, newest):
            self._slide(second)

    def _add_series(self, process: _ProcessState, frame: LiveFrame, at: float) -> None:
        shares = _shares(at, frame.window_s)
        if frame.series or not frame.replicas:
            for second, share in shares.items():
                covered = process.covered.get(second, 0.0)
                process.covered[second] = covered + share * frame.window_s
        is_newest = (frame.epoch, at) >= process.gauges_at
        if is_newest:
            process.gauges_at, process.pending = (frame.epoch, at), {}
        middle = math.floor(at - frame.window_s / 2)
        for series in frame.series:
            key = LiveKey(series.tenant_id, series.model, series.version_id, series.sla_class)
            state = self._series.setdefault(key, _SeriesState())
            if (at, series.target_us) > (state.target_at, state.target_us):
                state.target_at, state.target_us = at, series.target_us
            if series.answered or series.failed or series.pending:
                state.last_active_at = max(state.last_active_at, at)
            for second, share in shares.items():
                state.rates.setdefault(second, Rates()).add_share(series, share)
            tally = Tally.of(series)
            self._count(state, middle, tally)
            if not self.windows.add(middle, _series_key(series), tally):
                self.late_series += 1
            if is_newest:
                process.pending[key] = process.pending.get(key, 0) + series.pending

    def _count(self, state: _SeriesState, second: int, tally: Tally) -> None:
        if self._closed is not None and second <= self._closed - WINDOW_S:
            return
        state.seconds.setdefault(second, Tally()).add(tally)
        if self._closed is not None and second <= self._closed:
            state.window.add(tally)

    def _add_gauges(self, frame: LiveFrame, at: float) -> None:
        for gauge in frame.replicas:
            held = self._gauges.get(gauge.replica_id)
            if held is None or (gauge.epoch, at) > (held.row.epoch, held.at):
                self._gauges[gauge.replica_id] = _Gauge(gauge, at, frame.window_s)

    def _slide(self, second: int) -> None:
        self._closed = second
        for state in self._series.values():
            if (entered := state.seconds.get(second)) is not None:
                state.window.add(entered)
            if (left := state.seconds.pop(second - WINDOW_S, None)) is not None:
                state.window.add(left, -1)
            _drop_until(state.rates, second - WINDOW_S)
        if self._is_covered(second):
            self.windows.cover(second)
        self._slices += self.windows.advance(second)
        for process in self._processes.values():
            _drop_until(process.covered, second - WINDOW_S)

    def _is_covered(self, second: int) -> bool:
        return any(p.covered.get(second, 0.0) >= 0.5 for p in self._processes.values())

    def _picture(self, second: int) -> LiveSecond:
        covered = self._is_covered(second)
        present = second + 1 - PRESENT_S
        return LiveSecond(
            at=second,
            covered=covered,
            rows=self._rows(second, present) if covered else [],
            replicas=[_replica(g) for _, g in sorted(self._gauges.items()) if g.at > present],
        )

    def _rows(self, second: int, present: float) -> list[LiveRow]:
        pending = self._pending_since(present)
        groups: dict[tuple[str, str], list[LiveKey]] = {}
        for key in sorted(self._series):
            groups.setdefault((key.tenant_id, key.model), []).append(key)
        return [self._group_row(keys, second, pending) for keys in groups.values()]

    def _group_row(self, keys: list[LiveKey], second: int, pending: dict[LiveKey, int]) -> LiveRow:
        states = [self._series[key] for key in keys]
        if len(keys) == 1:
            rates = states[0].rates.get(second, Rates())
            return _row(keys[0], states[0].target_us, rates, states[0].window, pending.get(keys[0], 0))
        window, rates = Tally(), Rates()
        for state in states:
            window.add(state.window)
            rates.add_share(state.rates.get(second, Rates()), 1.0)
        first = max(range(len(keys)), key=lambda i: self._prominence(keys[i]))
        row = _row(keys[first], states[first].target_us, rates, window, sum(pending.get(k, 0) for k in keys))
        row.parts = [self._group_row([key], second, pending) for key in keys]
        return row

    def _prominence(self, key: LiveKey) -> tuple[int, int, int]:
        """The row shows the class and target of what answers most; when idle, of the higher class, so that
        one request which lowered its own class does not rename the promise."""
        state = self._series[key]
        return state.window.answered, -state.target_us, -_CLASSES.index(key.sla_class)

    def _pending_since(self, present: float) -> dict[LiveKey, int]:
        out: dict[LiveKey, int] = {}
        for process in self._processes.values():
            if process.gauges_at[1] > present:
                for key, count in process.pending.items():
                    out[key] = out.get(key, 0) + count
        return out

    def _forget(self) -> None:
        """Drop what has been silent: series after `IDLE_S`, processes and gauges sooner."""
        closed = self._closed or 0
        idle = [k for k, s in self._series.items() if s.last_active_at < closed - IDLE_S and not s.seconds]
        for key in idle:
            del self._series[key]
        silent = [p for p, s in self._processes.items() if s.gauges_at[1] < closed - MAX_SKEW_S]
        for name in silent:
            del self._processes[name]
        for replica_id in [r for r, g in self._gauges.items() if g.at < closed - MAX_SKEW_S]:
            del self._gauges[replica_id]


def _series_key(series: Series) -> SeriesKey:
    return SeriesKey(series.tenant_id, series.model, series.version_id, series.endpoint, series.sla_class)


def _drop_until(seconds: dict[int, Rates] | dict[int, float], last: int) -> None:
    for second in [s for s in seconds if s <= last]:
        del seconds[second]


def _shares(at: float, window_s: float) -> dict[int, float]:
    """Seconds covered by `(at − window_s, at]` → share of the frame that belongs to each."""
    if window_s <= 0:
        return {math.floor(at): 1.0}
    start = at - window_s
    seconds: Iterable[int] = range(math.floor(start), math.ceil(at))
    overlaps = {s: (min(at, s + 1) - max(start, s)) / window_s for s in seconds}
    return {s: share for s, share in overlaps.items() if share > 0}


def _row(key: LiveKey, target_us: int, rates: Rates, window: Tally, pending: int) -> LiveRow:
    p50, p95, p99 = window.percentiles_ms("total", 0.5, 0.95, 0.99)
    answered, kept = window.answered, window.kept_share
    return LiveRow(
        tenant_id=key.tenant_id,
        model=key.model,
        version_id=key.version_id,
        sla_class=key.sla_class,
        target_ms=target_us / 1000,
        rps=significant(rates.answered),
        failed={code: significant(count) for code, count in sorted(rates.failed.items()) if count},
        rows_s=significant(rates.rows),
        tokens_s=significant(rates.tokens),
        device_ms_s=significant(rates.device_us / 1000),
        cost_micro_s=significant(rates.cost_micro),
        pending=pending,
        kept=None if kept is None else round(kept, 5),
        p50=p50,
        p95=p95,
        p99=p99,
        batch=significant(window.batch_rows_sum / answered) if answered else None,
        shared=significant(window.shared / answered) if answered else None,
        stages=window.stage_means_ms(),
        stages_p95=window.stage_p95_ms(),
        closes=window.close_shares(),
    )


def _replica(gauge: _Gauge) -> ReplicaRow:
    row, window_s = gauge.row, gauge.window_s or 1.0
    return ReplicaRow(
        replica_id=row.replica_id,
        model=row.model,
        version_id=row.version_id,
        queued=row.queued_rows,
        running=row.running_rows,
        busy=significant(min(1.0, row.busy_us / window_s / 1e6)),
        batches_s=significant(row.batches / window_s),
        rows_s=significant(row.rows / window_s),
        tokens_s=significant(row.tokens / window_s),
        cost_error=row.cost_error_p95,
        efficiency=significant(row.tokens / row.executed_tokens) if row.executed_tokens else None,
        memory_bytes=row.memory_bytes,
    )
