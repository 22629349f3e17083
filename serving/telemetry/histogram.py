"""Log-bucket histograms that merge over processes, hosts and time.

DDSketch's idea (Masson, Rim, Lee, VLDB 2019) with a fixed γ: a value lands in bucket ⌈log_γ v⌉ and every
percentile read back is within (γ−1)/(γ+1) ≈ 1 % of a real value, however histograms were split and merged.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

GAMMA = 1.02
_LOG = math.log(GAMMA)
_INVERSE_LOG = 1.0 / _LOG
_log = math.log
MAX_BUCKET = math.ceil(math.log(3.6e9) / _LOG)  # one hour in microseconds


TABLED = 8192
"""Values below are looked up: most stages take fewer microseconds."""


def bucket_of(value: int) -> int:
    """Where a value is counted."""
    bucket = int(_log(value) * _INVERSE_LOG) + 1 if value > 0 else 0
    return min(bucket, MAX_BUCKET)


_BUCKETS = tuple(map(bucket_of, range(TABLED)))


class Histogram:
    """Counts of positive integers (microseconds, rows, tokens). Zero has a bucket of its own."""

    __slots__ = ("counts", "sum")

    def __init__(self, counts: dict[int, int] | None = None, total: int = 0) -> None:
        self.counts: dict[int, int] = counts if counts is not None else {}
        self.sum = total

    def record(self, value: int) -> None:
        """About 0.15 µs. Values of one hour and more share the last bucket."""
        bucket = _BUCKETS[value] if 0 <= value < TABLED else bucket_of(value)
        counts = self.counts
        counts[bucket] = counts.get(bucket, 0) + 1
        self.sum += value

    def merge(self, other: Histogram) -> None:
        counts = self.counts
        for bucket, count in other.counts.items():
            counts[bucket] = counts.get(bucket, 0) + count
        self.sum += other.sum

    @property
    def count(self) -> int:
        return sum(self.counts.values())

    def percentiles(self, quantiles: Iterable[float]) -> list[float | None]:
        """Values at `quantiles` (ascending, 0–1), None each when nothing was recorded."""
        wanted = list(quantiles)
        total = self.count
        if not total:
            return [None] * len(wanted)
        out: list[float | None] = []
        buckets = iter(sorted(self.counts.items()))
        bucket, seen = next(buckets)
        seen_count = seen
        for quantile in wanted:
            rank = max(1, math.ceil(quantile * total))
            while seen_count < rank:
                bucket, seen = next(buckets)
                seen_count += seen
            out.append(value_of(bucket))
        return out

    def count_at_most(self, limit: int) -> int:
        """How many recorded values are ≤ `limit`, to within one bucket."""
        edge = int(_log(limit) * _INVERSE_LOG) + 1 if limit > 0 else 0
        return sum(count for bucket, count in self.counts.items() if bucket <= edge)

    def take(self) -> Histogram:
        """Hand over what was recorded since the last take, and start empty."""
        taken = Histogram(self.counts, self.sum)
        self.counts, self.sum = {}, 0
        return taken


def value_of(bucket: int) -> float:
    """The value that stands for a bucket: its middle in the sense of relative error."""
    return 0.0 if bucket == 0 else 2.0 * GAMMA**bucket / (GAMMA + 1.0)
