"""Which candidate to serve: the fastest whose answers are as close to the reference's as was asked. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from serving.contract import Agreement, OptionValue, TuningRow

Goal = Literal["throughput", "latency"]
TIE = 0.03
"""Speeds this close, as a share, are the same: measurements are no better than that."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far answers may be from the reference's. None does not ask; `Agreement` says what each means."""

    min_cosine: float | None = 0.999
    max_error: float | None = None
    min_label_agreement: float | None = None


@dataclass(frozen=True, slots=True)
class Recommendation:
    """`index` of the row to serve; None when none qualifies. `gain` is its speed over the reference's."""

    index: int | None
    gain: float | None = None
    reason: str = ""


def recommend(
    rows: Sequence[TuningRow],
    candidates: Sequence[Mapping[str, OptionValue]],
    tolerance: Tolerance,
    goal: Goal = "throughput",
) -> Recommendation:
    """The fastest row within the tolerance; of rows equally fast the one with the least memory."""
    fit = [row for row in rows if why_not(row, tolerance) == ""]
    speeds = {row.index: speed(row, candidates[row.index], goal) for row in fit}
    if not fit:
        return Recommendation(None, reason="no candidate ran within the tolerance")
    best = max(speeds.values())
    tied = [row for row in fit if speeds[row.index] >= best * (1 - TIE)]
    chosen = min(tied, key=lambda row: (row.memory_bytes or 0, -speeds[row.index], row.index))
    reference = speeds.get(0)
    return Recommendation(chosen.index, speeds[chosen.index] / reference if reference else None)


def speed(row: TuningRow, options: Mapping[str, OptionValue], goal: Goal) -> float:
    """Higher is faster. Throughput is counted per thread: a replica of two threads has the cores of two."""
    if goal == "latency":
        return 1000.0 / row.p50_ms if row.p50_ms else 0.0
    if not row.rows_per_s:
        return 0.0
    return row.rows_per_s[max(row.rows_per_s)] / max(1, int(options.get("threads", 1)))


class Shortfall(NamedTuple):
    """A bound that a row does not keep."""

    measure: Literal["cosine", "error", "labels", "equality"]
    found: float
    bound: float


def why_not(row: TuningRow, tolerance: Tolerance) -> str:
    """Why a row does not qualify, in words; empty when it does."""
    if not row.ok or row.agreement is None:
        return row.reason or "it was not measured"
    missed = shortfall(row.agreement, tolerance)
    match missed:
        case None:
            return ""
        case ("equality", _, _):
            return "its answers differ, and no bound says how far they may"
        case ("error", found, bound):
            return f"error {found:.3g} is above {bound:g}"
        case ("labels", found, bound):
            return f"{found:.2%} of labels agree, less than {bound:.2%}"
    return f"cosine {missed.found:.6g} is below {missed.bound:g}"


def shortfall(found: Agreement, asked: Tolerance) -> Shortfall | None:
    """The first bound that is not kept.

    A bound on a measure that means nothing for the model is passed over; when no bound is left that means
    something, only answers equal to the reference's qualify.
    """
    bounds = _bounds(found, asked)
    if not bounds:
        is_equal = not found.max_abs_error and found.label_agreement in (None, 1.0)
        return None if is_equal else Shortfall("equality", found.max_abs_error or 0.0, 0.0)
    return next((missed for is_kept, missed in bounds if not is_kept), None)


def _bounds(found: Agreement, asked: Tolerance) -> list[tuple[bool, Shortfall]]:
    """Each bound that was asked for and means something here, and whether it is kept."""
    bounds: list[tuple[bool, Shortfall]] = []
    if asked.min_cosine is not None and found.cosine_min is not None:
        missed = Shortfall("cosine", found.cosine_min, asked.min_cosine)
        bounds.append((missed.found >= missed.bound, missed))
    if asked.max_error is not None and found.max_abs_error is not None:
        missed = Shortfall("error", found.max_abs_error, asked.max_error)
        bounds.append((missed.found <= missed.bound, missed))
    if asked.min_label_agreement is not None and found.label_agreement is not None:
        missed = Shortfall("labels", found.label_agreement, asked.min_label_agreement)
        bounds.append((missed.found >= missed.bound, missed))
    return bounds
