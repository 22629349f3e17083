"""What this gateway counts on the hot path, and the frame it makes of it once a second.

A recorder is fetched once per lane; recording is a handful of integer additions. The set of recorders is
bounded: what does not fit, and every unknown model, is counted as `other`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from serving.contract import SlaClass
from serving.prices import PARTS_PER_MICRO
from serving.telemetry.frames import STAGES, STREAM_STAGES, Series, slots_of
from serving.telemetry.histogram import Histogram
from serving.wire import Stages

MAX_SERIES = 4096
OTHER = "other"


@dataclass(frozen=True, slots=True)
class SeriesLabels:
    tenant_id: str
    model: str
    version_id: str
    endpoint: str
    sla_class: SlaClass


@dataclass(slots=True)
class Counts:
    """Sums and histograms of some span of time."""

    answered: int = 0
    kept: int = 0
    rows: int = 0
    tokens: int = 0
    device_us: int = 0
    cost_micro: int = 0
    cost_parts: int = 0
    """What is not yet in `cost_micro`."""
    shared: int = 0
    executed_us: int = 0
    """Execution of each answer's batch, and what was predicted of it; streams left out."""
    predicted_us: int = 0
    misjudged_us: int = 0
    """By how much the two differ, added up without signs."""
    batch_tokens: int = 0
    """Of each answer's batch, and what the device worked on for it, padding included, where the engine says."""
    executed_tokens: int = 0
    failed: dict[str, int] = field(default_factory=dict)
    closes: dict[str, int] = field(default_factory=dict)
    batch_rows: Histogram = field(default_factory=Histogram)
    stages: tuple[Histogram, ...] = field(default_factory=lambda: tuple(Histogram() for _ in STAGES))
    streams: tuple[Histogram, ...] = field(default_factory=lambda: tuple(Histogram() for _ in STREAM_STAGES))

    @property
    def is_empty(self) -> bool:
        return not (self.answered or self.failed or self.device_us)

    def named_stages(self) -> Iterator[tuple[str, Histogram]]:
        """Those of every answer, then those that only streamed ones have, where there were any."""
        yield from zip(STAGES, self.stages, strict=True)
        for name, stage in zip(STREAM_STAGES, self.streams, strict=True):
            if stage.count:
                yield name, stage

    def merge(self, other: Counts) -> None:
        self.answered += other.answered
        self.kept += other.kept
        self.rows += other.rows
        self.tokens += other.tokens
        self.device_us += other.device_us
        self.cost_micro += other.cost_micro
        self.cost_parts += other.cost_parts
        self.shared += other.shared
        self.executed_us += other.executed_us
        self.predicted_us += other.predicted_us
        self.misjudged_us += other.misjudged_us
        self.batch_tokens += other.batch_tokens
        self.executed_tokens += other.executed_tokens
        for mine, theirs in ((self.failed, other.failed), (self.closes, other.closes)):
            for name, count in theirs.items():
                mine[name] = mine.get(name, 0) + count
        self.batch_rows.merge(other.batch_rows)
        for stage, recorded in zip(self.stages, other.stages, strict=True):
            stage.merge(recorded)
        for stage, recorded in zip(self.streams, other.streams, strict=True):
            stage.merge(recorded)


class SeriesRecorder:
    """One tenant × model × version × endpoint × class of this gateway."""

    __slots__ = ("_cost_rest", "labels", "pending", "target_us", "total", "window")

    def __init__(self, labels: SeriesLabels) -> None:
        self.labels = labels
        self.target_us = 0
        self.pending = 0
        """Requests of this series in flight now."""
        self.window = Counts()
        self.total = Counts()
        self._cost_rest = 0

    def answered(
        self,
        stages: Stages,
        gateway_us: int,
        total_us: int,
        rows: int,
        tokens: int,
        first_chunk_us: int | None = None,
        cost_parts: int = 0,
    ) -> None:
        """One good answer: its stages (microseconds) and what it used; the promise is about its beginning."""
        window = self.window
        window.answered += 1
        window.rows += rows
        window.tokens += tokens
        window.device_us += stages.device_us
        window.cost_parts += cost_parts
        if (total_us if first_chunk_us is None else first_chunk_us) <= self.target_us:
            window.kept += 1
        if stages.batch_requests > 1:
            window.shared += 1
        if first_chunk_us is None:
            executed_us, predicted_us = stages.execute_us, stages.predicted_us
            window.executed_us += executed_us
            window.predicted_us += predicted_us
            window.misjudged_us += abs(executed_us - predicted_us)
        if stages.executed_tokens:
            window.batch_tokens += stages.batch_tokens
            window.executed_tokens += stages.executed_tokens
        close = stages.close
        window.closes[close] = window.closes.get(close, 0) + 1
        window.batch_rows.record(stages.batch_rows)
        in_gateway, queue, batch_wait, execute, post, total = window.stages
        in_gateway.record(gateway_us)
        queue.record(stages.queue_us)
        batch_wait.record(stages.batch_wait_us)
        execute.record(stages.execute_us + stages.interrupted_us)
        post.record(stages.post_us)
        total.record(total_us)

    def streamed(self, first_chunk_us: int, gap_us: int) -> None:
        """One streamed answer besides: when its first chunk left, the mean time between two (0: only one)."""
        first_chunk, chunk_gap = self.window.streams
        first_chunk.record(first_chunk_us)
        if gap_us:
            chunk_gap.record(gap_us)

    def failed(self, code: str) -> None:
        failed = self.window.failed
        failed[code] = failed.get(code, 0) + 1

    def used(self, device_us: int, cost_parts: int = 0) -> None:
        """Device time of a request that was not answered."""
        self.window.device_us += device_us
        self.window.cost_parts += cost_parts

    def take(self) -> Series | None:
        """What was counted since the last take, None when nothing was and nothing is in flight."""
        window = self.window
        if window.is_empty and not self.pending:
            return None
        # The rest below a micro-unit is carried over, so that sums stay exact.
        whole, self._cost_rest = divmod(window.cost_parts + self._cost_rest, PARTS_PER_MICRO)
        window.cost_micro, window.cost_parts = whole, 0
        self.window = Counts()
        self.total.merge(window)
        return self._series(window)

    def _series(self, window: Counts) -> Series:
        labels = self.labels
        return Series(
            tenant_id=labels.tenant_id,
            model=labels.model,
            version_id=labels.version_id,
            endpoint=labels.endpoint,
            sla_class=labels.sla_class,
            target_us=self.target_us,
            answered=window.answered,
            failed=window.failed,
            kept=window.kept,
            rows=window.rows,
            tokens=window.tokens,
            device_us=window.device_us,
            cost_micro=window.cost_micro,
            shared=window.shared,
            closes=window.closes,
            slots=slots_of((*window.named_stages(), ("batch_rows", window.batch_rows))),
            pending=self.pending,
            executed_us=window.executed_us,
            predicted_us=window.predicted_us,
            misjudged_us=window.misjudged_us,
            batch_tokens=window.batch_tokens,
            executed_tokens=window.executed_tokens,
        )


class Metrics:
    """All recorders of a gateway."""

    def __init__(self) -> None:
        self._recorders: dict[SeriesLabels, SeriesRecorder] = {}
        self.received = self.replayed = 0
        """Inference requests of this process. Each is counted once more when it ends: answered, failed or replayed."""

    def series(
        self,
        tenant_id: str,
        model: str,
        version_id: str,
        endpoint: str,
        sla_class: SlaClass,
        target_us: int = 0,
    ) -> SeriesRecorder:
        labels = SeriesLabels(tenant_id, model, version_id, endpoint, sla_class)
        recorder = self._recorders.get(labels)
        if recorder is None:
            if len(self._recorders) >= MAX_SERIES:
                labels = SeriesLabels(OTHER, OTHER, "", endpoint, "standard")
            recorder = self._recorders.setdefault(labels, SeriesRecorder(labels))
        recorder.target_us = target_us
        return recorder

    def unrouted(self, tenant_id: str, endpoint: str) -> SeriesRecorder:
        """Where refusals are counted that never got as far as a model of the platform."""
        return self.series(tenant_id, OTHER, "", endpoint, "standard")

    def take(self) -> tuple[Series, ...]:
        """The series of a frame."""
        taken = (recorder.take() for recorder in self._recorders.values())
        return tuple(series for series in taken if series is not None)

    def totals(self) -> Iterator[tuple[SeriesRecorder, Counts]]:
        """Each recorder with everything it ever counted, the unfinished second included."""
        for recorder in self._recorders.values():
            whole = Counts()
            whole.merge(recorder.total)
            whole.merge(recorder.window)
            whole.cost_micro += (whole.cost_parts + recorder._cost_rest) // PARTS_PER_MICRO
            yield recorder, whole
