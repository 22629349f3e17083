"""The last minutes, summed for whoever asks: alerts, budgets, the console. Pure: seconds in, windows out.

Seconds are gathered in slices of `SLICE_S`. A slice closes when late frames can no longer reach it, and is
kept encoded. For each window length and grouping somebody asks for, a running sum of closed slices is kept:
a slice is added once when it closes and taken away once when it leaves, and reading adds the open slices
only. A window therefore covers whole slices: up to `SLICE_S` seconds more than was asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from serving.contract import SlaClass
from serving.telemetry.tally import Tally, decode_tally, encode_tally

SLICE_S = 10
LATE_S = 10
"""A slice closes this long after its end."""
KEPT_S = 360
"""The longest window that can be read here; longer ones add stored slices."""
VIEW_IDLE_S = 600
"""A sum nobody read for this long is no longer kept."""


class SeriesKey(NamedTuple):
    tenant_id: str
    model: str
    version_id: str
    endpoint: str
    sla_class: SlaClass


LABELS = SeriesKey._fields
Group = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Window:
    """What one group counted. The tally is the reader's to read, never to change."""

    labels: dict[str, str]
    """Of the labels asked for."""
    tally: Tally
    covered_s: float
    """Seconds of the window that any gateway reported on: the rest is a gap, not zero."""


class Windows(Protocol):
    def read(self, window_s: float, now: float, by: tuple[str, ...]) -> list[Window]:
        """Sums per group of the labels `by`; groups without any count are left out. With no labels there is
        exactly one window, of everything, also when nothing was counted.

        Raises ValueError for an unknown label or a window longer than `KEPT_S`.
        """
        ...


class Slice(NamedTuple):
    """Everything that was counted in `SLICE_S` seconds."""

    start: int
    covered_s: int
    tallies: Mapping[SeriesKey, bytes]
    """Encoded, as they are stored too."""


@dataclass(slots=True)
class _Open:
    tallies: dict[SeriesKey, Tally] = field(default_factory=dict)
    covered_s: int = 0


@dataclass(slots=True)
class _View:
    """The running sum of closed slices for one window length and grouping."""

    positions: tuple[int, ...]
    read_at: float
    sums: dict[Group, Tally] = field(default_factory=dict)
    held: dict[int, Slice] = field(default_factory=dict)

    def group(self, key: SeriesKey) -> Group:
        return tuple(key[position] for position in self.positions)

    def enter(self, closed: Slice) -> None:
        self.held[closed.start] = closed
        for key, raw in closed.tallies.items():
            self.sums.setdefault(self.group(key), Tally()).add(decode_tally(raw))

    def leave(self, start: int) -> None:
        for key, raw in self.held.pop(start).tallies.items():
            group = self.group(key)
            sums = self.sums[group]
            sums.add(decode_tally(raw), -1)
            if sums == _NOTHING:
                del self.sums[group]


_NOTHING = Tally()


class RecentWindows:
    """`Windows` over what a collector closed; fed by it with `add`, `cover` and `advance`."""

    def __init__(self) -> None:
        self._open: dict[int, _Open] = {}
        self._closed: dict[int, Slice] = {}
        self._views: dict[tuple[float, tuple[str, ...]], _View] = {}
        self._closed_until = 0

    def add(self, second: int, key: SeriesKey, tally: Tally) -> bool:
        """Count in the slice of a second; False when that slice is closed already: the frame was too late."""
        start = second - second % SLICE_S
        if start < self._closed_until:
            return False
        tallies = self._slice(start).tallies
        held = tallies.get(key)
        if held is None:
            tallies[key] = tally.copy()
        else:
            held.add(tally)
        return True

    def cover(self, second: int) -> None:
        """Some gateway reported on this second. To be said once for a second."""
        start = second - second % SLICE_S
        if start >= self._closed_until:
            self._slice(start).covered_s += 1

    def advance(self, second: int) -> list[Slice]:
        """The present is `second`: close what no frame reaches any more, oldest first, and forget the old."""
        due = sorted(start for start in self._open if start + SLICE_S + LATE_S <= second)
        closed = [self._close(start) for start in due]
        self._closed_until = max(self._closed_until, (second - LATE_S) // SLICE_S * SLICE_S)
        for start in [start for start in self._closed if start + SLICE_S <= second - KEPT_S - SLICE_S]:
            del self._closed[start]
        return closed

    def _slice(self, start: int) -> _Open:
        found = self._open.get(start)
        if found is None:
            found = self._open[start] = _Open()
        return found

    def _close(self, start: int) -> Slice:
        ended = self._open.pop(start)
        closed = Slice(start, ended.covered_s, {k: encode_tally(t) for k, t in ended.tallies.items()})
        self._closed[start] = closed
        return closed

    # ------------------------------------------------------------ reading

    def read(self, window_s: float, now: float, by: tuple[str, ...]) -> list[Window]:
        """See `Windows.read`."""
        view = self._view(window_s, now, by)
        since = now - window_s
        self._slide(view, since)
        open_slices = [part for start, part in self._open.items() if start + SLICE_S > since]
        covered_s = sum(part.covered_s for part in open_slices)
        covered_s += sum(closed.covered_s for closed in view.held.values())
        sums = _with_open(view, open_slices)
        if not by:
            sums.setdefault((), Tally())
        return [Window(dict(zip(by, group, strict=True)), tally, covered_s) for group, tally in sums.items()]

    def _view(self, window_s: float, now: float, by: tuple[str, ...]) -> _View:
        if not 0 < window_s <= KEPT_S:
            raise ValueError(f"a window is of 1 to {KEPT_S} seconds, not {window_s}")
        if unknown := set(by) - set(LABELS):
            raise ValueError(f"no such label: {', '.join(sorted(unknown))}")
        for idle in [key for key, view in self._views.items() if view.read_at < now - VIEW_IDLE_S]:
            del self._views[idle]
        view = self._views.get((window_s, by))
        if view is None:
            view = self._views[window_s, by] = _View(tuple(LABELS.index(label) for label in by), now)
        view.read_at = now
        return view

    def _slide(self, view: _View, since: float) -> None:
        for start in [start for start in view.held if start + SLICE_S <= since]:
            view.leave(start)
        for start, closed in self._closed.items():
            if start + SLICE_S > since and start not in view.held:
                view.enter(closed)


def _with_open(view: _View, open_slices: list[_Open]) -> dict[Group, Tally]:
    """The view's sums and what is still open; only groups that are in both are copied."""
    out = dict(view.sums)
    own: set[Group] = set()
    for key, tally in _items(open_slices):
        group = view.group(key)
        if group not in own:
            held = out.get(group)
            out[group] = Tally() if held is None else held.copy()
            own.add(group)
        out[group].add(tally)
    return out


def _items(open_slices: list[_Open]) -> Iterator[tuple[SeriesKey, Tally]]:
    for part in open_slices:
        yield from part.tallies.items()
