"""Replicas over time: what each said of itself, stored in the same slices as series, and read back.

There are few of them, so their table is a plain one: sums are made by PostgreSQL, and old rows deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any

import msgspec
from django.db import connection
from django.db.models import F, Max, QuerySet, Sum

from serving.control.telemetry.history import (
    MAX_POINTS,
    MAX_SERIES,
    Unanswerable,
    resolution_for,
    starts_of,
    step_for,
)
from serving.control.telemetry.models import RESOLUTIONS_S, ReplicaSlice
from serving.control.telemetry.rollup import SETTLED_S
from serving.control.telemetry.store import MAX_WAITING
from serving.telemetry.metrics import REPLICA_METRICS
from serving.telemetry.replica_tally import ReplicaTally
from serving.telemetry.windows import SLICE_S

SUMS = (
    "window_us", "busy_us", "batches", "rows", "tokens", "executed_tokens", "frames", "queued_rows", "running_rows",
)  # fmt: skip
MAXIMA = ("most_queued", "most_memory_bytes", "cost_error_p95")
ROLL_EACH_S = 30.0

_COLUMNS = ("replica_id", "model", "version_id", *SUMS, *MAXIMA)
_ROLL = f"""
INSERT INTO control_replicaslice (resolution_s, start, {", ".join(_COLUMNS)})
SELECT %(coarse)s, start - start %% %(coarse)s, replica_id, max(model), max(version_id),
       {", ".join(f"sum({name})" for name in SUMS)}, {", ".join(f"max({name})" for name in MAXIMA)}
FROM control_replicaslice
WHERE resolution_s = %(fine)s AND start >= %(since)s AND start < %(until)s
GROUP BY 2, replica_id
ON CONFLICT DO NOTHING
"""  # noqa: S608 - constants of this module


class ReplicaStore:
    """The controller's: writes what closed, and sums it to minutes and hours."""

    def __init__(self) -> None:
        self._rolled_at = 0.0
        self._waiting: dict[int, list[ReplicaTally]] = {}

    def step(self, closed: Mapping[int, list[ReplicaTally]], now: datetime) -> None:
        """What cannot be written waits, within bounds."""
        self._waiting = dict(sorted((self._waiting | dict(closed)).items())[-MAX_WAITING:])
        for start in list(self._waiting):
            write_replicas(SLICE_S, start, self._waiting[start])
            del self._waiting[start]
        if now.timestamp() >= self._rolled_at + ROLL_EACH_S:
            self._rolled_at = now.timestamp()
            roll_replicas(now.timestamp())


def write_replicas(resolution_s: int, start: int, tallies: list[ReplicaTally]) -> None:
    """What is there already stays: a second controller adds nothing."""
    rows = [
        ReplicaSlice(resolution_s=resolution_s, start=start, **msgspec.structs.asdict(t)) for t in tallies
    ]
    ReplicaSlice.objects.bulk_create(rows, ignore_conflicts=True)


def roll_replicas(now: float) -> None:
    """Sum whole minutes and hours that are over, from where their sums end."""
    for fine_s, coarse_s in pairwise(RESOLUTIONS_S):
        newest = ReplicaSlice.objects.filter(resolution_s=coarse_s).aggregate(at=Max("start"))["at"]
        since = 0 if newest is None else newest + coarse_s
        until = int(now - SETTLED_S) // coarse_s * coarse_s
        with connection.cursor() as cursor:
            cursor.execute(_ROLL, {"coarse": coarse_s, "fine": fine_s, "since": since, "until": until})


@dataclass(frozen=True, slots=True)
class ReplicaSeries:
    replica_id: str
    model: str
    version_id: str
    values: dict[str, list[float | None]]


@dataclass(frozen=True, slots=True)
class ReplicaAnswer:
    step_s: int
    starts: list[int]
    series: list[ReplicaSeries]
    left_out: int
    """Replicas less busy than those answered."""


def read_replicas(
    metrics: tuple[str, ...],
    since: float,
    until: float,
    now: float,
    step_s: int = 0,
    model: str | None = None,
) -> ReplicaAnswer:
    """Replica metrics over time; None where a replica said nothing. Raises `Unanswerable`."""
    step_s = step_s or step_for(since, until, now)
    _check(metrics, since, until, step_s)
    starts = starts_of(since, until, step_s)
    found: dict[str, dict[int, ReplicaTally]] = {}
    for tally, start in _sums(starts[0], starts[-1] + step_s, step_s, model):
        found.setdefault(tally.replica_id, {})[(start - starts[0]) // step_s] = tally
    ranked = sorted(found.values(), key=lambda points: -sum(t.busy_us for t in points.values()))
    series = [_series(metrics, points, len(starts)) for points in ranked[:MAX_SERIES]]
    return ReplicaAnswer(step_s, starts, series, max(0, len(ranked) - MAX_SERIES))


def _check(metrics: tuple[str, ...], since: float, until: float, step_s: int) -> None:
    for name in metrics:
        if name not in REPLICA_METRICS:
            raise Unanswerable("metric", f"There is no replica metric {name!r}: see /api/v1/metrics.")
    if not since < until:
        raise Unanswerable("since", "It must be before `until`.")
    if step_s <= 0 or step_s % SLICE_S or (until - since) / step_s > MAX_POINTS:
        raise Unanswerable("step", f"A multiple of {SLICE_S} seconds that makes at most {MAX_POINTS} points.")


def _sums(since: int, until: int, step_s: int, model: str | None) -> list[tuple[ReplicaTally, int]]:
    """Sums by step and replica: of the coarsest rows that fit, and of the finest since those end."""
    coarse_s = resolution_for(step_s)
    newest = ReplicaSlice.objects.filter(resolution_s=coarse_s, start__lt=until).aggregate(at=Max("start"))[
        "at"
    ]
    edge = since if newest is None else max(since, newest + coarse_s)
    point = (F("start") - since) / step_s
    rows = ReplicaSlice.objects.filter(**({} if model is None else {"model": model}))
    parts = [
        _summed(rows.filter(resolution_s=coarse_s, start__gte=since, start__lt=edge), point),
        _summed(rows.filter(resolution_s=SLICE_S, start__gte=edge, start__lt=until), point),
    ]
    merged: dict[tuple[str, int], ReplicaTally] = {}
    for row in (row for part in parts for row in part):
        at = since + row.pop("point") * step_s
        tally = ReplicaTally(**row)
        held = merged.get((tally.replica_id, at))
        merged[tally.replica_id, at] = tally if held is None else _joined(held, tally)
    return [(tally, at) for (_, at), tally in merged.items()]


def _summed(rows: QuerySet[ReplicaSlice], point: Any) -> QuerySet[ReplicaSlice, Any]:
    sums = {name: Sum(name) for name in SUMS} | {name: Max(name) for name in MAXIMA}
    return rows.values("replica_id", "model", "version_id", point=point).annotate(**sums)


def _joined(first: ReplicaTally, second: ReplicaTally) -> ReplicaTally:
    sums = {name: getattr(first, name) + getattr(second, name) for name in SUMS}
    most = {name: max(getattr(first, name), getattr(second, name)) for name in MAXIMA[:2]}
    return msgspec.structs.replace(second, **sums, **most)


def _series(metrics: tuple[str, ...], points: dict[int, ReplicaTally], count: int) -> ReplicaSeries:
    rows = {at: row for at, tally in points.items() if (row := tally.row()) is not None}
    one = next(iter(points.values()))
    values = {
        name: [
            float(value)
            if at in rows and (value := REPLICA_METRICS[name].read(rows[at])) is not None
            else None
            for at in range(count)
        ]
        for name in metrics
    }
    return ReplicaSeries(one.replica_id, one.model, one.version_id, values)
