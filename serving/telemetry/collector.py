"""Merges the frames of every process into one picture per second. Pure: frames and `now` in, data out.

A second is closed `LAG_S` after it ended, so that frames which straddle it have arrived. Rates belong to the
second itself (a frame is split over the seconds it covers); percentiles, kept share, batch and stage figures
slide over the last `WINDOW_S` seconds. The order in which frames arrive, and how counts are split over
processes, changes nothing. A second no gateway covered is marked, never reported as zero.

What was counted goes to `windows` besides, where longer spans are summed; what is too late for them is counted.
A frame is taken in without merging it: sums slide only for the series that a picture shows.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from heapq import nlargest

from serving.contract import SlaClass
from serving.telemetry.frames import LiveFrame, Series
from serving.telemetry.live import Gauge, LiveKey, LiveRow, LiveSecond, replica_of, rest_of, row_of
from serving.telemetry.replica_tally import ReplicaSlices, ReplicaTally
from serving.telemetry.tally import Rates, Tally
from serving.telemetry.windows import LATE_S, RecentWindows, SeriesKey, Slice

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
MAX_GROUPS = 300
"""Tenant × model pairs in a picture, besides those of tenants that somebody watches."""
COLLECT_EACH = 50_000
"""Allocations between garbage collections of a process that collects frames: a second makes as many counts."""
RANK_S = 5
"""How often it is asked anew which are the busiest. Until there are too many, nothing is."""
_CLASSES: tuple[SlaClass, ...] = ("interactive", "standard", "batch")

Pair = tuple[str, str]
"""Tenant id, model."""


@dataclass(slots=True, eq=False)
class _Live:
    """One live series."""

    key: LiveKey
    window: Tally | None = None
    """The last `WINDOW_S` closed seconds, while a picture shows the series."""
    rates: Rates = field(default_factory=Rates)
    """Of the second that was pictured last."""
    weight: float = 0.0
    """Requests lately, halved each `RANK_S`."""
    target_us: int = 0
    target_at: float = 0.0
    last_active_at: float = 0.0


@dataclass(slots=True)
class _Second:
    """What frames said of one second. A tally belongs to the second in the middle of its frame, whole."""

    counted: list[tuple[_Live, Tally]] = field(default_factory=list)
    shares: list[tuple[_Live, Series, float]] = field(default_factory=list)


@dataclass(slots=True)
class _ProcessState:
    seen: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=SEEN_SEQUENCES))
    covered: dict[int, float] = field(default_factory=dict)
    gauges_at: tuple[int, float] = (-1, 0.0)
    pending: list[tuple[LiveKey, int]] = field(default_factory=list)


class Collector:
    """Feed it with `add`, ask it with `step`. Memory is bounded by series × `WINDOW_S`."""

    def __init__(self) -> None:
        self._known: dict[SeriesKey, tuple[SeriesKey, _Live]] = {}
        self._live: dict[LiveKey, _Live] = {}
        self._pairs: dict[str, dict[str, list[_Live]]] = {}
        """Tenant → model → its series."""
        self._seconds: dict[int, _Second] = {}
        self._processes: dict[str, _ProcessState] = {}
        self._gauges: dict[str, Gauge] = {}
        self._closed: int | None = None
        self._busiest: frozenset[Pair] = frozenset()
        self.windows = RecentWindows()
        self.late_series = 0
        """Series of frames that came too late for their slice. Charts show less than was; bills do not."""
        self._slices: list[Slice] = []
        self._replicas = ReplicaSlices()

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

    def step(self, now: float, watched: Collection[str] | None = None) -> list[LiveSecond]:
        """Close every second that ended `LAG_S` ago, oldest first.

        With `watched` a picture is bounded: it holds every row of these tenants, and the busiest of the others.
        """
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
            out.append(self._picture(self._closed, watched))
        return out

    def take_slices(self) -> list[Slice]:
        """The slices that closed since the last take, oldest first."""
        taken, self._slices = self._slices, []
        return taken

    def take_replica_slices(self) -> dict[int, list[ReplicaTally]]:
        """What replicas said of themselves, in slices that closed since the last take."""
        return self._replicas.close_until((self._closed or 0) - LATE_S)

    def _start(self, newest: int) -> None:
        """Begin with the window that was already received; what is older never counts."""
        first = newest - WINDOW_S
        for second in [second for second in self._seconds if second < first]:
            del self._seconds[second]
        for second in range(first, newest):
            self._slide(second)

    # ------------------------------------------------------------ taking in

    def _add_series(self, process: _ProcessState, frame: LiveFrame, at: float) -> None:
        shares = [(self._second(s).shares, share) for s, share in self._open_shares(process, frame, at)]
        if is_newest := (frame.epoch, at) >= process.gauges_at:
            process.gauges_at, process.pending = (frame.epoch, at), []
        middle = math.floor(at - frame.window_s / 2)
        counted = self._second(middle).counted
        is_in_window = self._closed is not None and middle <= self._closed
        known = self._known
        for series in frame.series:
            # A plain tuple finds what is known as well, and costs less than a named one.
            label = (series.tenant_id, series.model, series.version_id, series.endpoint, series.sla_class)
            key, live = known.get(label) or self._meet(SeriesKey(*label))  # type: ignore[call-overload]
            _note(live, series, at)
            for second, share in shares:
                second.append((live, series, share))
            tally = Tally.of(series)
            counted.append((live, tally))
            if is_in_window and live.window is not None:
                live.window.add(tally)
            if not self.windows.add(middle, key, tally):
                self.late_series += 1
            if is_newest and series.pending:
                process.pending.append((live.key, series.pending))

    def _meet(self, key: SeriesKey) -> tuple[SeriesKey, _Live]:
        live_key = LiveKey(key.tenant_id, key.model, key.version_id, key.sla_class)
        live = self._live.get(live_key)
        if live is None:
            live = self._live[live_key] = _Live(live_key)
            self._pairs.setdefault(key.tenant_id, {}).setdefault(key.model, []).append(live)
        self._known[key] = (key, live)
        return key, live

    def _open_shares(
        self, process: _ProcessState, frame: LiveFrame, at: float
    ) -> Iterator[tuple[int, float]]:
        """Seconds not closed yet that the frame covers, each with its share of it."""
        for second, share in _shares(at, frame.window_s).items():
            if frame.series or not frame.replicas:
                covered = process.covered.get(second, 0.0)
                process.covered[second] = covered + share * frame.window_s
            if self._closed is None or second > self._closed:
                yield second, share

    def _second(self, second: int) -> _Second:
        found = self._seconds.get(second)
        if found is None:
            found = self._seconds[second] = _Second()
        return found

    def _add_gauges(self, frame: LiveFrame, at: float) -> None:
        for gauge in frame.replicas:
            held = self._gauges.get(gauge.replica_id)
            if held is None or (gauge.epoch, at) > (held.row.epoch, held.at):
                self._gauges[gauge.replica_id] = Gauge(gauge, at, frame.window_s)
            self._replicas.add(Gauge(gauge, at, frame.window_s))

    # ------------------------------------------------------------ time goes on

    def _slide(self, second: int) -> None:
        self._closed = second
        if (entered := self._seconds.get(second)) is not None:
            _slide_windows(entered.counted, 1)
        if (left := self._seconds.pop(second - WINDOW_S, None)) is not None:
            _slide_windows(left.counted, -1)
        if self._is_covered(second):
            self.windows.cover(second)
        self._slices += self.windows.advance(second)
        for process in self._processes.values():
            for old in [s for s in process.covered if s <= second - WINDOW_S]:
                del process.covered[old]
        if second % RANK_S == 0:
            self._forget(second)
            self._rank()

    def _is_covered(self, second: int) -> bool:
        return any(p.covered.get(second, 0.0) >= 0.5 for p in self._processes.values())

    def _rank(self) -> None:
        weights: dict[Pair, float] = {}
        for key, live in self._live.items():
            pair = (key.tenant_id, key.model)
            weights[pair] = weights.get(pair, 0.0) + live.weight
            live.weight /= 2
        if len(weights) <= MAX_GROUPS:
            self._busiest = frozenset(weights)
        else:
            self._busiest = frozenset(nlargest(MAX_GROUPS, weights, key=lambda pair: (weights[pair], pair)))

    def _forget(self, second: int) -> None:
        """Drop what has been silent: series after `IDLE_S`, processes and gauges sooner."""
        idle = {key for key, live in self._live.items() if live.last_active_at < second - IDLE_S}
        if idle:
            self._live = {key: live for key, live in self._live.items() if key not in idle}
            self._known = {key: held for key, held in self._known.items() if held[1].key not in idle}
            self._pairs = {}
            for key, live in self._live.items():
                self._pairs.setdefault(key.tenant_id, {}).setdefault(key.model, []).append(live)
        silent = [p for p, s in self._processes.items() if s.gauges_at[1] < second - MAX_SKEW_S]
        for name in silent:
            del self._processes[name]
        for replica_id in [r for r, g in self._gauges.items() if g.at < second - MAX_SKEW_S]:
            del self._gauges[replica_id]

    # ------------------------------------------------------------ the picture

    def _picture(self, second: int, watched: Collection[str] | None) -> LiveSecond:
        covered = self._is_covered(second)
        present = second + 1 - PRESENT_S
        return LiveSecond(
            at=second,
            covered=covered,
            rows=self._rows(second, present, watched) if covered else [],
            replicas=[replica_of(g) for _, g in sorted(self._gauges.items()) if g.at > present],
        )

    def _rows(self, second: int, present: float, watched: Collection[str] | None) -> list[LiveRow]:
        pending = self._pending_since(present)
        shown = sorted(self._shown(watched))
        self._follow({live.key for tenant_id, model in shown for live in self._pairs[tenant_id][model]})
        rest = self._rate(second)
        rows = [self._pair_row(self._pairs[tenant_id][model], pending) for tenant_id, model in shown]
        if len(shown) < sum(map(len, self._pairs.values())):
            rows.append(rest_of(rest))
        return rows

    def _rate(self, second: int) -> Rates:
        """Rates of the series shown, which have windows; returns those of the rest together."""
        rest = Rates()
        for live, series, share in self._second(second).shares:
            (rest if live.window is None else live.rates).add_share(series, share)
        return rest

    def _shown(self, watched: Collection[str] | None) -> set[Pair]:
        every = ((tenant_id, model) for tenant_id, models in self._pairs.items() for model in models)
        if watched is None or sum(map(len, self._pairs.values())) <= MAX_GROUPS:
            return set(every)
        own = {(tenant_id, model) for tenant_id in watched for model in self._pairs.get(tenant_id, ())}
        return own | {pair for pair in self._busiest if pair[1] in self._pairs.get(pair[0], ())}

    def _follow(self, shown: set[LiveKey]) -> None:
        """Have a window of each series shown, and of no other."""
        new = set()
        for key, live in self._live.items():
            if key not in shown:
                live.window = None
                continue
            live.rates = Rates()
            if live.window is None:
                live.window = Tally()
                new.add(key)
        if new:
            self._fill(new)

    def _fill(self, new: set[LiveKey]) -> None:
        assert self._closed is not None
        for second in range(self._closed - WINDOW_S + 1, self._closed + 1):
            if (found := self._seconds.get(second)) is not None:
                _slide_windows([(live, tally) for live, tally in found.counted if live.key in new], 1)

    def _pair_row(self, lives: list[_Live], pending: dict[LiveKey, int]) -> LiveRow:
        """A row of a tenant and model; with several versions or classes, their sum and themselves as parts."""
        if len(lives) == 1:
            return _row(lives[0], pending)
        window, rates = Tally(), Rates()
        for live in lives:
            window.add(live.window or _NOTHING)
            rates.add_share(live.rates, 1.0)
        lives = sorted(lives, key=lambda live: live.key)
        first = max(lives, key=_prominence)
        row = row_of(first.key, first.target_us, rates, window, sum(pending.get(o.key, 0) for o in lives))
        row.parts = [_row(live, pending) for live in lives]
        return row

    def _pending_since(self, present: float) -> dict[LiveKey, int]:
        out: dict[LiveKey, int] = {}
        for process in self._processes.values():
            if process.gauges_at[1] > present:
                for key, count in process.pending:
                    out[key] = out.get(key, 0) + count
        return out


_NOTHING = Tally()


def _note(live: _Live, series: Series, at: float) -> None:
    if at > live.target_at or (at == live.target_at and series.target_us > live.target_us):
        live.target_at, live.target_us = at, series.target_us
    if series.answered or series.failed or series.pending:
        if at > live.last_active_at:
            live.last_active_at = at
        live.weight += series.answered + len(series.failed)


def _slide_windows(counted: Iterable[tuple[_Live, Tally]], sign: int) -> None:
    for live, tally in counted:
        if live.window is not None:
            live.window.add(tally, sign)


def _row(live: _Live, pending: dict[LiveKey, int]) -> LiveRow:
    return row_of(live.key, live.target_us, live.rates, live.window or _NOTHING, pending.get(live.key, 0))


def _prominence(live: _Live) -> tuple[int, int, int]:
    """The row shows the class and target of what answers most; when idle, of the higher class, so that one
    request which lowered its own class does not rename the promise."""
    answered = live.window.answered if live.window else 0
    return answered, -live.target_us, -_CLASSES.index(live.key.sla_class)


def _shares(at: float, window_s: float) -> dict[int, float]:
    """Seconds covered by `(at − window_s, at]` → share of the frame that belongs to each."""
    if window_s <= 0:
        return {math.floor(at): 1.0}
    start = at - window_s
    seconds: Iterable[int] = range(math.floor(start), math.ceil(at))
    overlaps = {s: (min(at, s + 1) - max(start, s)) / window_s for s in seconds}
    return {s: share for s, share in overlaps.items() if share > 0}
