"""Ten seconds become a minute, a minute an hour: coarser slices are sums of finer ones, written once, whole.

A coarse slice is due when its time is over and no finer slice can join it any more. It is built from rows, so a
controller that was restarted goes on where it was; `covered_s` says how much of it was reported on.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from django.db.models import Max, QuerySet

from serving.control.telemetry.models import RESOLUTIONS_S, MetricSlice, MetricSpan
from serving.control.telemetry.store import tally_of, write_rows, write_span
from serving.telemetry.tally import Tally, encode_tally
from serving.telemetry.windows import LATE_S, SLICE_S, SeriesKey
from tenants.scoping import all_tenants

SETTLED_S = LATE_S + 2 * SLICE_S + 10
"""So long after its end a slice's last part has been written, or never will be."""
BUDGET_S = 0.1
"""How long one step works, so that the other steps of the controller are never held up."""
TENANTS_AT_ONCE = 4

_LABELS = ("tenant_id", "model", "version_id", "endpoint", "sla_class")


def merged(parts: Iterable[tuple[SeriesKey, bytes]]) -> dict[SeriesKey, bytes]:
    """Sum encoded tallies by series. Pure; what occurs once passes through as it is."""
    once: dict[SeriesKey, bytes] = {}
    sums: dict[SeriesKey, Tally] = {}
    for key, raw in parts:
        if (held := sums.get(key)) is not None:
            held.add(tally_of(raw))
        elif (first := once.pop(key, None)) is not None:
            sums[key] = tally_of(first)
            sums[key].add(tally_of(raw))
        else:
            once[key] = raw
    return once | {key: encode_tally(tally) for key, tally in sums.items()}


def due(fine: Iterable[int], resolution_s: int, now: float) -> list[int]:
    """Starts of the coarse slices that finer ones at `fine` belong to and whose time is over. Pure."""
    starts = {start - start % resolution_s for start in fine}
    return sorted(start for start in starts if start + resolution_s + SETTLED_S <= now)


@dataclass(slots=True)
class _Job:
    """One coarse slice being built, tenants by tenants."""

    fine_s: int
    coarse_s: int
    start: int
    waiting: list[str]


class RollUp:
    """The controller's: `step` works for a bounded time and goes on where it stopped.

    Rows of a coarse slice are written a few tenants at a time; only its span, written last, makes them count.
    Whoever begins again after a crash finds those rows, and adds what is missing.
    """

    def __init__(self, budget_s: float = BUDGET_S) -> None:
        self._budget_s = budget_s
        self._job: _Job | None = None

    def step(self, now: datetime) -> int:
        """Returns how many coarse slices were finished."""
        until, finished = time.monotonic() + self._budget_s, 0
        while True:
            if self._job is None:
                self._job = _next_job(now.timestamp())
            if self._job is None:
                return finished
            finished += self._advance(self._job)
            if time.monotonic() >= until:
                return finished

    def _advance(self, job: _Job) -> bool:
        chunk, job.waiting = job.waiting[:TENANTS_AT_ONCE], job.waiting[TENANTS_AT_ONCE:]
        if chunk:
            _sum_tenants(job, chunk)
        if job.waiting:
            return False
        write_span(job.coarse_s, job.start, _covered_s(job))
        self._job = None
        return True


def _next_job(now: float) -> _Job | None:
    for fine_s, coarse_s in pairwise(RESOLUTIONS_S):
        starts = due(_unsummed(fine_s, coarse_s), coarse_s, now)
        if starts:
            rows = _rows(fine_s, coarse_s, starts[0])
            with all_tenants("slices of every tenant are summed"):
                tenants = sorted(set(rows.values_list("tenant_id", flat=True).distinct()))
            return _Job(fine_s, coarse_s, starts[0], tenants)
    return None


def _unsummed(fine_s: int, coarse_s: int) -> Iterable[int]:
    """Finer slices newer than the newest coarse one."""
    newest = MetricSpan.objects.filter(resolution_s=coarse_s).aggregate(at=Max("start"))["at"]
    fine = MetricSpan.objects.filter(resolution_s=fine_s)
    if newest is not None:
        fine = fine.filter(start__gte=newest + coarse_s)
    return fine.values_list("start", flat=True)


def _rows(fine_s: int, coarse_s: int, start: int) -> QuerySet[MetricSlice]:
    with all_tenants("slices of every tenant are summed"):
        return MetricSlice.objects.filter(resolution_s=fine_s, start__gte=start, start__lt=start + coarse_s)


def _sum_tenants(job: _Job, tenants: list[str]) -> None:
    rows = _rows(job.fine_s, job.coarse_s, job.start).filter(tenant_id__in=tenants)
    with all_tenants("slices of every tenant are summed"):
        parts = merged((SeriesKey(*row[:-1]), bytes(row[-1])) for row in rows.values_list(*_LABELS, "tally"))
        write_rows(job.coarse_s, job.start, parts)


def _covered_s(job: _Job) -> int:
    spans = MetricSpan.objects.filter(
        resolution_s=job.fine_s, start__gte=job.start, start__lt=job.start + job.coarse_s
    )
    return sum(spans.values_list("covered_s", flat=True))
