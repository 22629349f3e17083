"""Ten seconds become a minute, a minute an hour: coarser slices are sums of finer ones, written once, whole.

A coarse slice is due when its time is over and no finer slice can join it any more. It is built from rows, so a
controller that was restarted goes on where it was; `covered_s` says how much of it was reported on.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from itertools import pairwise

from django.db.models import Max, Min

from serving.control.telemetry.models import RESOLUTIONS_S, MetricSlice, MetricSpan
from serving.control.telemetry.store import tally_of, write
from serving.telemetry.tally import Tally, encode_tally
from serving.telemetry.windows import LATE_S, SLICE_S, SeriesKey, Slice
from tenants.scoping import all_tenants

SETTLED_S = LATE_S + 2 * SLICE_S + 10
"""So long after its end a slice's last part has been written, or never will be."""
MAX_AT_ONCE = 10
"""Coarse slices written by one step, so that a controller which was away catches up without holding others up."""

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


def step(now: datetime) -> int:
    """Write the coarse slices that are due; returns how many."""
    return sum(_roll(fine_s, coarse_s, now.timestamp()) for fine_s, coarse_s in pairwise(RESOLUTIONS_S))


def _roll(fine_s: int, coarse_s: int, now: float) -> int:
    newest = MetricSpan.objects.filter(resolution_s=coarse_s).aggregate(at=Max("start"))["at"]
    fine = MetricSpan.objects.filter(resolution_s=fine_s)
    if newest is None:
        newest = fine.aggregate(at=Min("start"))["at"]
        after = -coarse_s if newest is None else newest - coarse_s - newest % coarse_s
    else:
        after = newest
    starts = fine.filter(start__gte=after + coarse_s).values_list("start", flat=True)
    return sum(_write(fine_s, coarse_s, start) for start in due(starts, coarse_s, now)[:MAX_AT_ONCE])


def _write(fine_s: int, coarse_s: int, start: int) -> bool:
    spans = MetricSpan.objects.filter(resolution_s=fine_s, start__gte=start, start__lt=start + coarse_s)
    with all_tenants("slices of every tenant are summed"):
        rows = MetricSlice.objects.filter(
            resolution_s=fine_s, start__gte=start, start__lt=start + coarse_s
        ).values_list(*_LABELS, "tally")
        parts = merged((SeriesKey(*row[:-1]), bytes(row[-1])) for row in rows.iterator(chunk_size=2000))
    return write(coarse_s, Slice(start, sum(spans.values_list("covered_s", flat=True)), parts))
