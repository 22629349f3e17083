"""The catalog of metrics: what can be charted, alerted on and asked for, and how each is read from counts.

Every page, rule, answer and document reads this table, so that a number is the same wherever it is seen. A
metric is a pure function of a `Tally` and the seconds it covers; it is None where there is no evidence, and
never a zero that nobody measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from serving.telemetry.frames import STAGES, STREAM_STAGES
from serving.telemetry.live import ReplicaRow
from serving.telemetry.tally import ERROR_CODES, REFUSAL_CODES, Tally, significant

Direction = Literal["worse", "better", "neither"]
"""What a higher value means."""
Unit = Literal["ms", "share", "1/s", "ms/s", "micro", "micro/s", "rows", "requests", "bytes"]
Read = Callable[[Tally, float], float | None]
"""Counts and the seconds they cover → the value."""

STAGE_TEXTS = {
    "gateway": "Time in the gateway",
    "queue": "Time waiting in the replica's queue",
    "batch_wait": "Time waiting for the batch to begin",
    "execute": "Time executing, interruptions by urgent batches included",
    "post": "Time between the end of execution and the answer",
    "total": "Time from the request's arrival to its answer",
    "first_chunk": "Time until the first chunk of a streamed answer",
    "chunk_gap": "Time between two chunks of a streamed answer",
}
PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True, slots=True)
class Metric:
    """One line of the catalog of series metrics."""

    name: str
    unit: Unit
    text: str
    """One English sentence without its full stop; the console translates it."""
    direction: Direction
    read: Read


@dataclass(frozen=True, slots=True)
class ReplicaMetric:
    """One line of the catalog of replica metrics, read from what a replica says of itself now."""

    name: str
    unit: Unit
    text: str
    direction: Direction
    read: Callable[[ReplicaRow], float | None]


def _share(part: float, whole: float) -> float | None:
    return significant(part / whole) if whole else None


def _per_s(count: Callable[[Tally], float]) -> Read:
    return lambda tally, seconds: significant(count(tally) / seconds) if seconds > 0 else None


def _ratio(part: Callable[[Tally], float], whole: Callable[[Tally], float]) -> Read:
    return lambda tally, seconds: _share(part(tally), whole(tally))


def _percentile(stage: str, quantile: float) -> Read:
    return lambda tally, seconds: tally.percentiles_ms(stage, quantile)[0]


def _mean_ms(stage: str) -> Read:
    return lambda tally, seconds: _share(tally.sum_of(stage) / 1000, tally.histogram(stage).count)


def _stage_metrics() -> Iterable[Metric]:
    for stage in (*STAGES, *STREAM_STAGES):
        for name, quantile in PERCENTILES.items():
            text = f"{STAGE_TEXTS[stage]}, {_ordinal(quantile)} percentile"
            yield Metric(f"{stage}_{name}_ms", "ms", text, "worse", _percentile(stage, quantile))
        yield Metric(f"{stage}_mean_ms", "ms", f"{STAGE_TEXTS[stage]}, mean", "worse", _mean_ms(stage))


def _ordinal(quantile: float) -> str:
    return f"{round(quantile * 100)}th"


_SERIES = (
    *_stage_metrics(),
    Metric(
        "requests_s", "1/s", "Requests per second, whatever became of them", "neither",
        _per_s(lambda t: t.ended),
    ),
    Metric("answered_s", "1/s", "Good answers per second", "better", _per_s(lambda t: t.answered)),
    Metric(
        "errors_s", "1/s", "Errors the platform answers for, per second", "worse",
        _per_s(lambda t: t.failed_of(ERROR_CODES)),
    ),
    Metric(
        "refusals_s", "1/s", "Requests turned away per second: limits, quotas, full queues, deadlines", "worse",
        _per_s(lambda t: t.failed_of(REFUSAL_CODES)),
    ),
    Metric(
        "error_share", "share", "Share of requests that ended in an error the platform answers for", "worse",
        _ratio(lambda t: t.failed_of(ERROR_CODES), lambda t: t.ended),
    ),
    Metric(
        "refusal_share", "share", "Share of requests that were turned away", "worse",
        _ratio(lambda t: t.failed_of(REFUSAL_CODES), lambda t: t.ended),
    ),
    Metric(
        "kept_share", "share", "Share of promised requests answered within the profile's target", "better",
        lambda tally, seconds: None if tally.kept_share is None else round(tally.kept_share, 5),
    ),
    Metric(
        "broken_share", "share", "Share of promised requests that were late, refused or failed", "worse",
        lambda tally, seconds: None if tally.kept_share is None else round(1 - tally.kept_share, 5),
    ),
    Metric(
        "batch_rows_mean", "rows", "Rows of the batch an answer ran in, mean", "better",
        _ratio(lambda t: t.sum_of("batch_rows"), lambda t: t.answered),
    ),
    Metric(
        "shared_share", "share", "Share of answers whose batch held more than one request", "better",
        _ratio(lambda t: t.shared, lambda t: t.answered),
    ),
    Metric(
        "batch_efficiency", "share", "Tokens of batches ÷ tokens executed: what padding leaves", "better",
        _ratio(lambda t: t.batch_tokens, lambda t: t.executed_tokens),
    ),
    Metric(
        "misjudged_share", "share", "Difference of predicted and real execution ÷ real execution", "worse",
        _ratio(lambda t: t.misjudged_us, lambda t: t.executed_us),
    ),
    Metric("rows_s", "1/s", "Rows answered per second", "neither", _per_s(lambda t: t.rows)),
    Metric("tokens_s", "1/s", "Tokens answered per second", "neither", _per_s(lambda t: t.tokens)),
    Metric(
        "device_ms_s", "ms/s", "Device time used per second", "neither", _per_s(lambda t: t.device_us / 1000)
    ),
    Metric(
        "device_ms_per_request", "ms", "Device time per answered request", "worse",
        _ratio(lambda t: t.device_us / 1000, lambda t: t.answered),
    ),
    Metric(
        "cost_micro_s", "micro/s", "Cost per second in millionths of the currency", "neither",
        _per_s(lambda t: t.cost_micro),
    ),
    Metric(
        "cost_micro_per_request", "micro", "Cost per answered request in millionths of the currency", "worse",
        _ratio(lambda t: t.cost_micro, lambda t: t.answered),
    ),
    Metric("pending", "requests", "Requests in flight, mean", "neither", _per_s(lambda t: t.pending_s)),
)  # fmt: skip

METRICS: dict[str, Metric] = {metric.name: metric for metric in _SERIES}

_REPLICA = (
    ReplicaMetric(
        "replica_busy_share", "share", "Share of the device's time the replica used", "neither",
        lambda r: r.busy,
    ),
    ReplicaMetric("replica_queued_rows", "rows", "Rows waiting in the replica", "worse", lambda r: r.queued),
    ReplicaMetric("replica_running_rows", "rows", "Rows running in the replica", "neither", lambda r: r.running),
    ReplicaMetric(
        "replica_memory_bytes", "bytes", "Memory of the replica's process", "worse",
        lambda r: r.memory_bytes or None,
    ),
    ReplicaMetric(
        "replica_cost_error_p95", "share", "Error of predicted execution times, 95th percentile", "worse",
        lambda r: r.cost_error,
    ),
    ReplicaMetric("replica_batches_s", "1/s", "Batches per second", "neither", lambda r: r.batches_s),
    ReplicaMetric("replica_rows_s", "1/s", "Rows per second", "neither", lambda r: r.rows_s),
    ReplicaMetric("replica_tokens_s", "1/s", "Tokens per second", "neither", lambda r: r.tokens_s),
    ReplicaMetric(
        "replica_efficiency", "share", "Real tokens ÷ executed tokens of the replica", "better",
        lambda r: r.efficiency,
    ),
)  # fmt: skip

REPLICA_METRICS: dict[str, ReplicaMetric] = {metric.name: metric for metric in _REPLICA}
