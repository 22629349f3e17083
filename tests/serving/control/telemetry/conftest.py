"""Slices to write and to read back."""

from __future__ import annotations

from serving.telemetry.frames import slots_of
from serving.telemetry.histogram import Histogram
from serving.telemetry.tally import Tally, encode_tally
from serving.telemetry.windows import SeriesKey, Slice

HOUR = 1_764_547_200
"""A full hour of Unix time, in the past."""


def key(tenant_id: str = "tnt_a", model: str = "minilm", version_id: str = "mv_1") -> SeriesKey:
    return SeriesKey(tenant_id, model, version_id, "infer", "interactive")


def tally(*totals_us: int, failed: dict[str, int] | None = None) -> Tally:
    histogram = Histogram()
    for total in totals_us:
        histogram.record(total)
    n = len(totals_us)
    return Tally(
        answered=n, kept=n, rows=n, failed=failed or {}, slots=slots_of([("total", histogram)])
    )  # fmt: skip


def piece(start: int, *totals_us: int, covered_s: int = 10, of: SeriesKey | None = None) -> Slice:
    """One slice with one series, or with none where there are no totals."""
    tallies = {of or key(): encode_tally(tally(*totals_us))} if totals_us else {}
    return Slice(start, covered_s, tallies)
