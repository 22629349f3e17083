"""What replicas said of themselves, added up over slices of time. Pure."""

from __future__ import annotations

import msgspec

from serving.telemetry.live import Gauge, ReplicaRow
from serving.telemetry.tally import significant
from serving.telemetry.windows import SLICE_S


class ReplicaTally(msgspec.Struct, gc=False):
    """One replica in one slice. Sums, but for the two largest values and the newest error."""

    replica_id: str
    model: str
    version_id: str
    window_us: int = 0
    """Time its frames covered: rates are per this, and what it did not report is no zero."""
    busy_us: int = 0
    batches: int = 0
    rows: int = 0
    tokens: int = 0
    executed_tokens: int = 0
    frames: int = 0
    queued_rows: int = 0
    """Summed over frames, as `running_rows`."""
    running_rows: int = 0
    most_queued: int = 0
    most_memory_bytes: int = 0
    cost_error_p95: float | None = None

    def add(self, gauge: Gauge) -> None:
        row = gauge.row
        self.window_us += round(gauge.window_s * 1e6)
        self.busy_us += row.busy_us
        self.batches += row.batches
        self.rows += row.rows
        self.tokens += row.tokens
        self.executed_tokens += row.executed_tokens
        self.frames += 1
        self.queued_rows += row.queued_rows
        self.running_rows += row.running_rows
        self.most_queued = max(self.most_queued, row.queued_rows)
        self.most_memory_bytes = max(self.most_memory_bytes, row.memory_bytes)
        if row.cost_error_p95 is not None:
            self.cost_error_p95 = row.cost_error_p95

    def row(self) -> ReplicaRow | None:
        """Means over the time reported, in the shape of the live row; None when nothing was."""
        seconds, frames = self.window_us / 1e6, self.frames
        if not seconds or not frames:
            return None
        return ReplicaRow(
            replica_id=self.replica_id,
            model=self.model,
            version_id=self.version_id,
            queued=round(self.queued_rows / frames),
            running=round(self.running_rows / frames),
            busy=significant(min(1.0, self.busy_us / self.window_us)),
            batches_s=significant(self.batches / seconds),
            rows_s=significant(self.rows / seconds),
            tokens_s=significant(self.tokens / seconds),
            cost_error=self.cost_error_p95,
            efficiency=significant(self.tokens / self.executed_tokens) if self.executed_tokens else None,
            memory_bytes=self.most_memory_bytes,
        )


class ReplicaSlices:
    """Gauges in, closed slices out. A gauge counts in the slice in which its frame ended."""

    def __init__(self) -> None:
        self._open: dict[int, dict[str, ReplicaTally]] = {}
        self._closed_until = 0

    def add(self, gauge: Gauge) -> None:
        start = int(gauge.at) // SLICE_S * SLICE_S
        if start < self._closed_until:
            return
        row = gauge.row
        held = self._open.setdefault(start, {})
        tally = held.get(row.replica_id)
        if tally is None:
            tally = held[row.replica_id] = ReplicaTally(row.replica_id, row.model, row.version_id)
        tally.add(gauge)

    def close_until(self, end: int) -> dict[int, list[ReplicaTally]]:
        """Slices that ended by `end` (Unix seconds), by their starts. What comes later for them is dropped."""
        self._closed_until = max(self._closed_until, end // SLICE_S * SLICE_S)
        due = sorted(start for start in self._open if start < self._closed_until)
        return {start: list(self._open.pop(start).values()) for start in due}
