"""Windows of hours: running sums of stored minutes, for burn rates and budgets.

A minute is added once when it is stored and taken away once when it leaves; the first reading takes whole hours
where they are stored. A long window ends with the newest stored minute, up to two minutes ago: what happens now
is for the short window beside it to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from serving.control.telemetry.models import MetricSlice, MetricSpan
from serving.control.telemetry.store import tally_of
from serving.telemetry.tally import Tally
from serving.telemetry.windows import KEPT_S, LABELS, VIEW_IDLE_S, Group, Window, Windows
from tenants.scoping import all_tenants

MINUTE_S, HOUR_S = 60, 3600
MAX_WINDOW_S = 3 * 86_400


@dataclass(slots=True)
class _Sums:
    """Of the minutes from `since` to `until` (Unix seconds)."""

    since: int
    until: int
    read_at: float = 0.0
    tallies: dict[Group, Tally] = field(default_factory=dict)
    covered: dict[int, int] = field(default_factory=dict)
    """Minute → its covered seconds."""


class AnyWindows:
    """`Windows` of any length up to `MAX_WINDOW_S`: short ones out of `recent`, long ones out of the store."""

    def __init__(self, recent: Windows) -> None:
        self._recent = recent
        self._sums: dict[tuple[float, tuple[str, ...]], _Sums] = {}

    def read(self, window_s: float, now: float, by: tuple[str, ...]) -> list[Window]:
        """See `Windows.read`; raises ValueError likewise."""
        if window_s <= KEPT_S:
            return self._recent.read(window_s, now, by)
        if window_s > MAX_WINDOW_S:
            raise ValueError(f"a window is of 1 to {MAX_WINDOW_S} seconds, not {window_s}")
        if unknown := set(by) - set(LABELS):
            raise ValueError(f"no such label: {', '.join(sorted(unknown))}")
        sums = self._held(window_s, now, by)
        _enter(sums, int(now), by)
        _leave(sums, int(now - window_s) // MINUTE_S * MINUTE_S, by)
        found = dict(sums.tallies)
        if not by:
            found.setdefault((), Tally())
        covered_s = sum(sums.covered.values())
        return [Window(dict(zip(by, group, strict=True)), tally, covered_s) for group, tally in found.items()]

    def _held(self, window_s: float, now: float, by: tuple[str, ...]) -> _Sums:
        for idle in [key for key, sums in self._sums.items() if sums.read_at < now - VIEW_IDLE_S]:
            del self._sums[idle]
        start = int(now - window_s) // MINUTE_S * MINUTE_S
        sums = self._sums.setdefault((window_s, by), _Sums(start, start))
        sums.read_at = now
        return sums


def _enter(sums: _Sums, now: int, by: tuple[str, ...]) -> None:
    """Add what was stored since, hours first where nothing of them is in yet."""
    minutes = _spans(MINUTE_S, sums.until, now)
    if not minutes:
        return
    hours = [start for start in _spans(HOUR_S, sums.until, now) if start >= sums.until]
    apart = [start for start in minutes if start - start % HOUR_S not in hours]
    for resolution_s, starts in ((HOUR_S, hours), (MINUTE_S, apart)):
        for group, tally in _rows(resolution_s, starts, by):
            sums.tallies.setdefault(group, Tally()).add(tally)
    sums.covered |= minutes
    sums.until = max(minutes) + MINUTE_S


def _leave(sums: _Sums, since: int, by: tuple[str, ...]) -> None:
    gone = [start for start in sums.covered if start < since]
    for group, tally in _rows(MINUTE_S, gone, by):
        held = sums.tallies.setdefault(group, Tally())
        held.add(tally, -1)
        if held == Tally():
            del sums.tallies[group]
    for start in gone:
        del sums.covered[start]
    sums.since = max(sums.since, since)


def _spans(resolution_s: int, since: int, until: int) -> dict[int, int]:
    spans = MetricSpan.objects.filter(resolution_s=resolution_s, start__gte=since, start__lt=until)
    return dict(spans.values_list("start", "covered_s"))


def _rows(resolution_s: int, starts: Iterable[int], by: tuple[str, ...]) -> Iterator[tuple[Group, Tally]]:
    chosen = sorted(starts)
    if not chosen:
        return
    with all_tenants("windows are of every tenant"):
        rows: Any = MetricSlice.objects.filter(resolution_s=resolution_s, start__in=chosen)
        found = list(rows.values_list("tally", *by))
    for raw, *labels in found:
        yield tuple(labels), tally_of(bytes(raw))
