"""What is added up per tenant × model × version × class: whole counts for windows, split rates for seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from serving.errors import BY_CODE
from serving.telemetry.frames import STAGES, Series
from serving.telemetry.histogram import Histogram

_Name = TypeVar("_Name", str, int)

BROKEN_CODES = frozenset(
    code for code, kind in BY_CODE.items() if kind.status >= 500 or code == "queue_full"
) | frozenset({"internal_error"})
"""Failures the platform answers for. A client's own mistakes and limits do not break a promise."""


@dataclass(slots=True)
class Tally:
    """Integer counts; adding and later subtracting the same tally leaves exactly nothing."""

    answered: int = 0
    kept: int = 0
    broken: int = 0
    """Refusals and errors the platform answers for."""
    shared: int = 0
    batch_rows_sum: int = 0
    closes: dict[str, int] = field(default_factory=dict)
    stages: dict[str, dict[int, int]] = field(default_factory=dict)
    stage_sums: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, series: Series) -> Tally:
        broken = sum(count for code, count in series.failed.items() if code in BROKEN_CODES)
        return cls(
            series.answered,
            series.kept,
            broken,
            series.shared,
            series.batch_rows_sum,
            dict(series.closes),
            {stage: dict(buckets) for stage, buckets in series.stages.items()},
            dict(series.stage_sums),
        )

    def add(self, other: Tally, sign: int = 1) -> None:
        """Merge (`sign=1`) or take back (`sign=-1`) another tally."""
        self.answered += sign * other.answered
        self.kept += sign * other.kept
        self.broken += sign * other.broken
        self.shared += sign * other.shared
        self.batch_rows_sum += sign * other.batch_rows_sum
        _add_counts(self.closes, other.closes, sign)
        _add_counts(self.stage_sums, other.stage_sums, sign)
        for stage, buckets in other.stages.items():
            _add_counts(self.stages.setdefault(stage, {}), buckets, sign)

    def percentiles_ms(self, stage: str, *quantiles: float) -> list[float | None]:
        values = Histogram(self.stages.get(stage, {})).percentiles(quantiles)
        return [None if value is None else significant(value / 1000) for value in values]

    def stage_means_ms(self) -> dict[str, float]:
        if not self.answered:
            return {}
        return {s: significant(self.stage_sums.get(s, 0) / self.answered / 1000) for s in STAGES}

    def stage_p95_ms(self) -> dict[str, float]:
        values = ((stage, self.percentiles_ms(stage, 0.95)[0]) for stage in STAGES)
        return {stage: value for stage, value in values if value is not None}

    def close_shares(self) -> dict[str, float]:
        total = sum(self.closes.values())
        return {reason: significant(count / total) for reason, count in sorted(self.closes.items())}

    @property
    def kept_share(self) -> float | None:
        promised = self.answered + self.broken
        return self.kept / promised if promised else None


@dataclass(slots=True)
class Rates:
    """Counts of one second; a frame that straddles two seconds gives each its share."""

    answered: float = 0.0
    rows: float = 0.0
    tokens: float = 0.0
    device_us: float = 0.0
    cost_micro: float = 0.0
    failed: dict[str, float] = field(default_factory=dict)

    def add_share(self, series: Series | Rates, share: float) -> None:
        self.answered += series.answered * share
        self.rows += series.rows * share
        self.tokens += series.tokens * share
        self.device_us += series.device_us * share
        self.cost_micro += series.cost_micro * share
        for code, count in series.failed.items():
            self.failed[code] = self.failed.get(code, 0.0) + count * share


def _add_counts(into: dict[_Name, int], other: Mapping[_Name, int], sign: int) -> None:
    for name, count in other.items():
        total = into.get(name, 0) + sign * count
        if total:
            into[name] = total
        else:
            into.pop(name, None)


def significant(value: float, digits: int = 4) -> float:
    """Rounded for the wire: charts need no more than four digits."""
    return float(f"{value:.{digits}g}")
