"""Metrics over time: stored slices merged into the points of a chart, gaps as gaps.

Percentiles are read after merging, so they are as exact as those of a second. For each point the coarsest
slices that fit it are taken, and finer ones where a coarse one is not written yet: the newest hour is there too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Q, QuerySet

from serving.control.telemetry.models import RESOLUTIONS_S, MetricSlice, MetricSpan
from serving.control.telemetry.retention import kept_s
from serving.control.telemetry.store import tally_of
from serving.telemetry.metrics import METRICS
from serving.telemetry.tally import Tally
from serving.telemetry.windows import LABELS, SLICE_S

MAX_POINTS = 1000
MAX_SERIES = 50
MAX_ROWS = 100_000
"""Slices one question may merge: about a second of work."""
GOOD_POINTS = 240
STEPS_S = (10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21_600, 86_400)


Group = tuple[str, ...]
"""Values of a question's labels `by`, in their order."""


class Unanswerable(ValueError):
    """A question that is too large, or makes no sense. `field` names what to change; the text says how."""

    def __init__(self, field: str, text: str) -> None:
        super().__init__(text)
        self.field = field


@dataclass(frozen=True, slots=True)
class Question:
    """Times are Unix seconds; `step_s` 0 chooses one. `only` holds values of labels that must be met."""

    metrics: tuple[str, ...]
    since: float
    until: float
    step_s: int = 0
    by: tuple[str, ...] = ()
    only: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Series:
    labels: dict[str, str]
    values: dict[str, list[float | None]]
    """Of each metric, one per point; None where there is no evidence."""


@dataclass(frozen=True, slots=True)
class Answer:
    step_s: int
    starts: list[int]
    covered: list[float]
    """Share of each point that any gateway reported on: 0 is a gap."""
    series: list[Series]
    left_out: int
    """Groups with fewer requests than those answered."""


def step_for(since: float, until: float, now: float) -> int:
    """The finest good step (s) for a span: not too many points, and still kept at that resolution. Pure."""
    for step_s in STEPS_S:
        if (until - since) / step_s <= GOOD_POINTS and since >= now - kept_s(resolution_for(step_s)):
            return step_s
    return STEPS_S[-1]


def resolution_for(step_s: int) -> int:
    """The coarsest slices whose seconds fit steps of `step_s`. Pure."""
    return max(one for one in RESOLUTIONS_S if step_s % one == 0)


def starts_of(since: float, until: float, step_s: int) -> list[int]:
    """Where each point of a chart begins: whole steps, at least one. Pure."""
    first = int(since // step_s * step_s)
    return list(range(first, max(first + 1, int(until)), step_s))


def read(question: Question, now: float) -> Answer:
    """The answer within the caller's tenant scope. Raises `Unanswerable`."""
    step_s = question.step_s or step_for(question.since, question.until, now)
    _check(question, step_s)
    starts = starts_of(question.since, question.until, step_s)
    chosen = _chosen(starts[0], starts[-1] + step_s, step_s)
    covered = _covered_s(chosen, starts[0], step_s, len(starts))
    groups = _groups(question, chosen, starts[0], step_s)
    ranked = sorted(groups, key=lambda group: (-sum(t.ended for t in groups[group].values()), group))
    if not question.by and not ranked:
        ranked, groups = [()], {(): {}}
    kept = ranked[:MAX_SERIES]
    return Answer(
        step_s,
        starts,
        [min(1.0, round(seconds / step_s, 3)) for seconds in covered],
        [_series(question, group, groups[group], covered) for group in kept],
        len(ranked) - len(kept),
    )


def sums(question: Question, now: float) -> tuple[dict[Group, Tally], float]:
    """Everything counted in the span by group, and the seconds of it that gateways reported on.

    Times are taken to the minute, and in a past of over a day to the hour where it ends: hours are read where they
    are stored. Raises `Unanswerable`.
    """
    edge_s = 3600 if question.until - question.since > 86_400 and question.until < now - 3600 else 60
    since = int(question.since // 60 * 60)
    until = int(-(-question.until // edge_s) * edge_s)
    _check(question, until - since)
    coarsest_s = 3600 if edge_s == 3600 or until >= now else 60
    chosen = _chosen(since, until, coarsest_s)
    out: dict[Group, Tally] = {}
    for _start, group, raw in _rows(question, chosen):
        out.setdefault(group, Tally()).add(tally_of(raw))
    return out, float(sum(sum(spans.values()) for spans in chosen.values()))


def _check(question: Question, step_s: int) -> None:
    for name in question.metrics:
        if name not in METRICS:
            raise Unanswerable("metric", f"There is no metric {name!r}: see /api/v1/metrics.")
    for label in (*question.by, *question.only):
        if label not in LABELS:
            raise Unanswerable("by", f"There is no label {label!r}: it is one of {', '.join(LABELS)}.")
    if not question.since < question.until:
        raise Unanswerable("since", "It must be before `until`.")
    if step_s <= 0 or step_s % SLICE_S:
        raise Unanswerable("step", f"A step is a multiple of {SLICE_S} seconds.")
    if (question.until - question.since) / step_s > MAX_POINTS:
        raise Unanswerable("step", f"That is more than {MAX_POINTS} points: choose a larger step.")


Chosen = dict[int, dict[int, int]]
"""Resolution → start → covered seconds, of the slices that are merged: no moment is in two of them."""


def _chosen(since: int, until: int, step_s: int) -> Chosen:
    out: Chosen = {}
    taken: set[tuple[int, int]] = set()
    wanted = sorted((one for one in RESOLUTIONS_S if one <= resolution_for(step_s)), reverse=True)
    spans: dict[int, dict[int, int]] = {one: {} for one in wanted}
    rows = MetricSpan.objects.filter(resolution_s__in=wanted, start__gte=since, start__lt=until)
    for resolution_s, start, seconds in rows.values_list("resolution_s", "start", "covered_s"):
        spans[resolution_s][start] = seconds
    for resolution_s, found in spans.items():
        out[resolution_s] = {s: c for s, c in found.items() if not _is_within(s, taken)}
        taken |= {(resolution_s, start) for start in found}
    return out


def _is_within(start: int, taken: set[tuple[int, int]]) -> bool:
    return any((coarse_s, start - start % coarse_s) in taken for coarse_s in RESOLUTIONS_S)


def _covered_s(chosen: Chosen, first: int, step_s: int, points: int) -> list[int]:
    out = [0] * points
    for spans in chosen.values():
        for start, seconds in spans.items():
            out[(start - first) // step_s] += seconds
    return out


def _groups(question: Question, chosen: Chosen, first: int, step_s: int) -> dict[Group, dict[int, Tally]]:
    """Group → number of the point → what was counted there."""
    out: dict[Group, dict[int, Tally]] = {}
    for start, group, raw in _rows(question, chosen):
        points = out.setdefault(group, {})
        point = (start - first) // step_s
        if (held := points.get(point)) is None:
            points[point] = tally_of(raw)
        else:
            held.add(tally_of(raw))
    return out


def _rows(question: Question, chosen: Chosen) -> Iterator[tuple[int, Group, bytes]]:
    left = MAX_ROWS
    for resolution_s, spans in chosen.items():
        if not spans:
            continue
        rows = _slices(question, resolution_s, spans)
        for start, raw, *labels in rows[: left + 1].iterator(chunk_size=2000):
            left -= 1
            if left < 0:
                raise Unanswerable(
                    "since", "That is too much at once: narrow it to a tenant, a model or less time."
                )
            yield start, tuple(labels), bytes(raw)


def _slices(
    question: Question, resolution_s: int, spans: Iterable[int]
) -> QuerySet[MetricSlice, tuple[Any, ...]]:
    matches = Q(**question.only, resolution_s=resolution_s, start__in=sorted(spans))
    return MetricSlice.objects.filter(matches).values_list("start", "tally", *question.by)


def _series(question: Question, group: Group, points: dict[int, Tally], covered: list[int]) -> Series:
    nothing = Tally()
    values: dict[str, list[float | None]] = {}
    for name in question.metrics:
        read_metric = METRICS[name].read
        values[name] = [
            read_metric(points.get(at, nothing), seconds) if seconds else None
            for at, seconds in enumerate(covered)
        ]
    return Series(dict(zip(question.by, group, strict=True)), values)
