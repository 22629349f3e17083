"""What the console is shown of one second: rows of series, rows of replicas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from serving.contract import SlaClass
from serving.telemetry.frames import STAGES, ReplicaGauge
from serving.telemetry.histogram import Histogram
from serving.telemetry.tally import Rates, Tally, percentiles_ms, significant

OTHER = "other"


class LiveKey(NamedTuple):
    """A live series: its endpoints are one."""

    tenant_id: str
    model: str
    version_id: str
    sla_class: SlaClass


class LiveRow(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One series in one second. Rates are per second; times in ms; shares 0–1; None where nothing was."""

    tenant_id: str
    model: str
    version_id: str
    sla_class: SlaClass
    target_ms: float
    rps: float
    failed: dict[str, float] = {}
    rows_s: float = 0.0
    tokens_s: float = 0.0
    device_ms_s: float = 0.0
    cost_micro_s: float = 0.0
    pending: int = 0
    kept: float | None = None
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    batch: float | None = None
    shared: float | None = None
    stages: dict[str, float] = {}
    stages_p95: dict[str, float] = {}
    closes: dict[str, float] = {}
    parts: list[LiveRow] = []
    """The versions and classes behind a row, when there is more than one."""


class ReplicaRow(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One replica now. `busy` is the share of its device's time it used."""

    replica_id: str
    model: str
    version_id: str
    queued: int
    running: int
    busy: float
    batches_s: float
    rows_s: float
    tokens_s: float
    cost_error: float | None = None
    """Relative error of predicted execution times, 95th percentile."""
    efficiency: float | None = None
    """Real tokens ÷ executed tokens: what padding leaves."""
    memory_bytes: int = 0


class LiveSecond(msgspec.Struct, kw_only=True):
    at: int
    """Unix seconds of its start."""
    covered: bool
    """Whether any gateway's frames cover this second."""
    rows: list[LiveRow]
    """Of more tenant × model pairs than a picture holds, the busiest; the rates of the rest are one row `other`."""
    replicas: list[ReplicaRow]


@dataclass(slots=True)
class Gauge:
    """What a replica last said, when, and over how long."""

    row: ReplicaGauge
    at: float
    window_s: float


def row_of(key: LiveKey, target_us: int, rates: Rates, window: Tally, pending: int) -> LiveRow:
    """A row out of the second's rates and the sliding window's counts."""
    histograms = window.histograms()
    total = histograms.get("total", Histogram())
    p50, p95, p99 = percentiles_ms(total, 0.5, 0.95, 0.99)
    answered, kept = window.answered, window.kept_share
    return LiveRow(
        tenant_id=key.tenant_id,
        model=key.model,
        version_id=key.version_id,
        sla_class=key.sla_class,
        target_ms=target_us / 1000,
        rps=significant(rates.answered),
        failed={code: significant(count) for code, count in sorted(rates.failed.items()) if count},
        rows_s=significant(rates.rows),
        tokens_s=significant(rates.tokens),
        device_ms_s=significant(rates.device_us / 1000),
        cost_micro_s=significant(rates.cost_micro),
        pending=pending,
        kept=None if kept is None else round(kept, 5),
        p50=p50,
        p95=p95,
        p99=p99,
        batch=significant(window.sum_of("batch_rows") / answered) if answered else None,
        shared=significant(window.shared / answered) if answered else None,
        stages=_means(window, answered),
        stages_p95=_p95(histograms),
        closes=window.close_shares(),
    )


def rest_of(rates: Rates) -> LiveRow:
    """What the rows left out counted together; a percentile over strangers would say nothing."""
    return row_of(LiveKey(OTHER, OTHER, "", "standard"), 0, rates, Tally(), 0)


def _means(window: Tally, answered: int) -> dict[str, float]:
    if not answered:
        return {}
    return {stage: significant(window.sum_of(stage) / answered / 1000) for stage in STAGES}


def _p95(histograms: dict[str, Histogram]) -> dict[str, float]:
    values = {s: percentiles_ms(histograms[s], 0.95)[0] for s in STAGES if s in histograms}
    return {stage: value for stage, value in values.items() if value is not None}


def replica_of(gauge: Gauge) -> ReplicaRow:
    row, window_s = gauge.row, gauge.window_s or 1.0
    return ReplicaRow(
        replica_id=row.replica_id,
        model=row.model,
        version_id=row.version_id,
        queued=row.queued_rows,
        running=row.running_rows,
        busy=significant(min(1.0, row.busy_us / window_s / 1e6)),
        batches_s=significant(row.batches / window_s),
        rows_s=significant(row.rows / window_s),
        tokens_s=significant(row.tokens / window_s),
        cost_error=row.cost_error_p95,
        efficiency=significant(row.tokens / row.executed_tokens) if row.executed_tokens else None,
        memory_bytes=row.memory_bytes,
    )
