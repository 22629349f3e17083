"""What is added up per series: whole counts for windows and slices, split rates for the live second."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from serving.errors import BY_CODE
from serving.telemetry.frames import FIRST_SLOT, HISTOGRAMS, SUM, Series
from serving.telemetry.histogram import Histogram

_Name = TypeVar("_Name", str, int)

BROKEN_CODES = frozenset(
    code for code, kind in BY_CODE.items() if kind.status >= 500 or code == "queue_full"
) | frozenset({"internal_error"})
"""Failures the platform answers for. A client's own mistakes and limits do not break a promise."""
REFUSAL_CODES = frozenset(
    {
        "rate_limited", "concurrency_exceeded", "queue_full", "insufficient_quota", "deadline_unattainable",
        "overloaded", "circuit_open", "draining", "model_not_ready", "quota_unavailable", "quota_reserved",
        "queue_share_full",
    }
)  # fmt: skip
"""Turned away before anything ran."""
ERROR_CODES = BROKEN_CODES - REFUSAL_CODES
"""Taken in, and gone wrong."""


class Tally(msgspec.Struct, array_like=True, gc=False):
    """Integer counts; adding and later subtracting the same tally leaves exactly nothing.

    Stored slices hold it as bytes: fields are only ever added at the end, with a default.
    """

    answered: int = 0
    kept: int = 0
    rows: int = 0
    tokens: int = 0
    device_us: int = 0
    cost_micro: int = 0
    shared: int = 0
    executed_us: int = 0
    predicted_us: int = 0
    misjudged_us: int = 0
    batch_tokens: int = 0
    executed_tokens: int = 0
    pending_s: int = 0
    """Requests in flight, once a second: over a span their mean is this ÷ its seconds."""
    failed: dict[str, int] = {}
    closes: dict[str, int] = {}
    slots: dict[int, int] = {}
    """Its histograms (`frames.slots_of`)."""

    @classmethod
    def of(cls, series: Series) -> Tally:
        """Takes the series' own dictionaries over: who adds to a tally made a copy before (`copy`)."""
        return cls(
            series.answered,
            series.kept,
            series.rows,
            series.tokens,
            series.device_us,
            series.cost_micro,
            series.shared,
            series.executed_us,
            series.predicted_us,
            series.misjudged_us,
            series.batch_tokens,
            series.executed_tokens,
            series.pending,
            series.failed,
            series.closes,
            series.slots,
        )

    def copy(self) -> Tally:
        made = copy(self)
        made.failed, made.closes, made.slots = dict(self.failed), dict(self.closes), dict(self.slots)
        return made

    def add(self, other: Tally, sign: int = 1) -> None:
        """Merge (`sign=1`) or take back (`sign=-1`) another tally."""
        self.answered += sign * other.answered
        self.kept += sign * other.kept
        self.rows += sign * other.rows
        self.tokens += sign * other.tokens
        self.device_us += sign * other.device_us
        self.cost_micro += sign * other.cost_micro
        self.shared += sign * other.shared
        self.executed_us += sign * other.executed_us
        self.predicted_us += sign * other.predicted_us
        self.misjudged_us += sign * other.misjudged_us
        self.batch_tokens += sign * other.batch_tokens
        self.executed_tokens += sign * other.executed_tokens
        self.pending_s += sign * other.pending_s
        merge = _add_counts if sign > 0 else _take_counts
        if other.failed:
            merge(self.failed, other.failed)
        if other.answered:
            merge(self.closes, other.closes)
            merge(self.slots, other.slots)

    def sum_of(self, name: str) -> int:
        """Sum of the values of a histogram."""
        return self.slots.get(FIRST_SLOT[name] + SUM, 0)

    def histogram(self, name: str) -> Histogram:
        first = FIRST_SLOT[name]
        end = first + SUM
        counts = {slot - first: count for slot, count in self.slots.items() if first <= slot < end}
        return Histogram(counts, self.sum_of(name))

    def histograms(self) -> dict[str, Histogram]:
        """Those with any values, read in one pass."""
        out: dict[str, Histogram] = {}
        for slot, count in self.slots.items():
            number, bucket = divmod(slot, SUM + 1)
            name = HISTOGRAMS[number]
            held = out.get(name)
            if held is None:
                held = out[name] = Histogram()
            if bucket == SUM:
                held.sum = count
            else:
                held.counts[bucket] = count
        return out

    def percentiles_ms(self, name: str, *quantiles: float) -> list[float | None]:
        return percentiles_ms(self.histogram(name), *quantiles)

    def close_shares(self) -> dict[str, float]:
        total = sum(self.closes.values())
        return {reason: significant(count / total) for reason, count in sorted(self.closes.items())}

    def failed_of(self, codes: frozenset[str]) -> int:
        return sum(count for code, count in self.failed.items() if code in codes)

    @property
    def broken(self) -> int:
        """Refusals and errors the platform answers for."""
        return self.failed_of(BROKEN_CODES) if self.failed else 0

    @property
    def ended(self) -> int:
        """Requests, whatever became of them."""
        return self.answered + sum(self.failed.values())

    @property
    def kept_share(self) -> float | None:
        promised = self.answered + self.broken
        return self.kept / promised if promised else None


def percentiles_ms(histogram: Histogram, *quantiles: float) -> list[float | None]:
    """Of a histogram of microseconds, in milliseconds; None each when it is empty."""
    values = histogram.percentiles(quantiles)
    return [None if value is None else significant(value / 1000) for value in values]


encode_tally = msgspec.msgpack.Encoder().encode
decode_tally = msgspec.msgpack.Decoder(Tally).decode


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


def _add_counts(into: dict[_Name, int], other: Mapping[_Name, int]) -> None:
    get = into.get
    for name, count in other.items():
        into[name] = get(name, 0) + count


def _take_counts(into: dict[_Name, int], other: Mapping[_Name, int]) -> None:
    """Whoever takes back what was added leaves no zeros behind."""
    for name, count in other.items():
        left = into.get(name, 0) - count
        if left:
            into[name] = left
        else:
            into.pop(name, None)


def significant(value: float, digits: int = 4) -> float:
    """Rounded for the wire: charts need no more than four digits."""
    return float(f"{value:.{digits}g}")
