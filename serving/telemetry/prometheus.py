"""`/metrics`: a gateway's series in the text format, through prometheus-client's exposition only.

Log buckets are folded into classic ones; a scrape costs milliseconds, recording costs nothing extra.
Labels come from bounded sets: `tenant` (slug), `model`, `version` (number), `endpoint`, `class`, `outcome`,
`stage`, `close`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from serving.telemetry.histogram import Histogram

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
LABELS = ("tenant", "model", "version", "endpoint", "class")


class Labelled(Protocol):
    @property
    def tenant_id(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def version_id(self) -> str: ...
    @property
    def endpoint(self) -> str: ...
    @property
    def sla_class(self) -> str: ...


class Recorder(Protocol):
    @property
    def labels(self) -> Labelled: ...
    @property
    def pending(self) -> int: ...


class Totals(Protocol):
    """Everything a series ever counted."""

    @property
    def answered(self) -> int: ...
    @property
    def kept(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def tokens(self) -> int: ...
    @property
    def device_us(self) -> int: ...
    @property
    def cost_micro(self) -> int: ...
    @property
    def failed(self) -> dict[str, int]: ...
    @property
    def executed_us(self) -> int: ...
    @property
    def predicted_us(self) -> int: ...
    @property
    def misjudged_us(self) -> int: ...
    @property
    def batch_tokens(self) -> int: ...
    @property
    def executed_tokens(self) -> int: ...
    @property
    def closes(self) -> dict[str, int]: ...
    @property
    def batch_rows(self) -> Histogram: ...
    def named_stages(self) -> Iterable[tuple[str, Histogram]]: ...


Row = tuple[list[str], Recorder, Totals]


def exposition(
    totals: Iterable[tuple[Recorder, Totals]],
    slugs: Mapping[str, str],
    numbers: Mapping[str, str],
    *more: Collector,
) -> bytes:
    """The text of one scrape. `slugs` names tenants, `numbers` versions; ids stand for unknown ones."""
    rows = [(_labels(recorder.labels, slugs, numbers), recorder, counts) for recorder, counts in totals]
    registry = CollectorRegistry()
    for collector in (_Once(rows), *more):
        registry.register(collector)
    return generate_latest(registry)


def fold(histogram: Histogram, edges: Iterable[float], scale: float) -> list[tuple[str, float]]:
    """Cumulative classic buckets; an edge is `edge × scale` in the histogram's own unit."""
    buckets = [(str(float(edge)), float(histogram.count_at_most(round(edge * scale)))) for edge in edges]
    return [*buckets, ("+Inf", float(histogram.count))]


class Received(Collector):
    """What came in, to hold the outcomes against: at rest both sums of a process are equal."""

    def __init__(self, received: int, replayed: int) -> None:
        self._received, self._replayed = received, replayed

    def collect(self) -> Iterator[Metric]:
        text = "Inference requests that came in, whatever became of them"
        yield CounterMetricFamily("tidegate_received_requests", text, self._received)
        text = "Requests that got what an earlier one with their Idempotency-Key had got"
        yield CounterMetricFamily("tidegate_replayed_requests", text, self._replayed)


class _Once(Collector):
    def __init__(self, rows: list[Row]) -> None:
        self._rows = rows

    def collect(self) -> Iterator[Metric]:
        yield self._requests()
        yield self._counter("tidegate_kept", "Answers within the profile's target", lambda c: c.kept)
        yield self._counter("tidegate_rows", "Rows answered", lambda c: c.rows)
        yield self._counter("tidegate_tokens", "Tokens answered", lambda c: c.tokens)
        yield self._counter("tidegate_device_seconds", "Device time used", lambda c: c.device_us / 1e6)
        yield self._counter(
            "tidegate_cost_units", "Cost in units of the currency", lambda c: c.cost_micro / 1e6
        )
        yield from self._judgements()
        yield self._closes()
        yield self._pending()
        yield self._stages()
        yield self._batch_rows()

    def _requests(self) -> Metric:
        family = CounterMetricFamily(
            "tidegate_requests", "Requests by outcome: ok or an error code", labels=[*LABELS, "outcome"]
        )
        for labels, _, counts in self._rows:
            for outcome, count in (("ok", counts.answered), *counts.failed.items()):
                family.add_metric([*labels, outcome], count)
        return family

    def _counter(self, name: str, text: str, value: _Value) -> Metric:
        family = CounterMetricFamily(name, text, labels=LABELS)
        for labels, _, counts in self._rows:
            family.add_metric(labels, value(counts))
        return family

    def _judgements(self) -> Iterator[Metric]:
        """Ratios of their rates: misjudged ÷ executed is the mean prediction error, batch ÷ executed tokens
        the batch efficiency."""
        batch = "of the batch of each answer"
        yield self._counter(
            "tidegate_executed_seconds", f"Execution {batch}, streams left out", lambda c: c.executed_us / 1e6
        )
        yield self._counter(
            "tidegate_predicted_seconds", f"Predicted execution {batch}", lambda c: c.predicted_us / 1e6
        )
        yield self._counter(
            "tidegate_misjudged_seconds",
            f"Difference of predicted and real execution {batch}",
            lambda c: c.misjudged_us / 1e6,
        )
        yield self._counter("tidegate_batch_tokens", f"Tokens {batch}", lambda c: c.batch_tokens)
        yield self._counter(
            "tidegate_executed_tokens",
            f"Tokens executed, padding included, {batch}",
            lambda c: c.executed_tokens,
        )

    def _closes(self) -> Metric:
        family = CounterMetricFamily(
            "tidegate_batch_closes", "Answers by why their batch closed", labels=[*LABELS, "close"]
        )
        for labels, _, counts in self._rows:
            for close, count in counts.closes.items():
                family.add_metric([*labels, close], count)
        return family

    def _pending(self) -> Metric:
        family = GaugeMetricFamily("tidegate_pending_requests", "Requests in flight now", labels=LABELS)
        for labels, recorder, _ in self._rows:
            family.add_metric(labels, recorder.pending)
        return family

    def _stages(self) -> Metric:
        family = HistogramMetricFamily(
            "tidegate_stage_seconds", "Time of answered requests by stage", labels=[*LABELS, "stage"]
        )
        for labels, _, counts in self._rows:
            for name, stage in counts.named_stages():
                family.add_metric([*labels, name], fold(stage, SECONDS, 1e6), stage.sum / 1e6)
        return family

    def _batch_rows(self) -> Metric:
        family = HistogramMetricFamily(
            "tidegate_batch_rows", "Rows of the batch of each answer", labels=LABELS
        )
        for labels, _, counts in self._rows:
            family.add_metric(labels, fold(counts.batch_rows, ROWS, 1), counts.batch_rows.sum)
        return family


class _Value(Protocol):
    def __call__(self, counts: Totals, /) -> float: ...


def _labels(labels: Labelled, slugs: Mapping[str, str], numbers: Mapping[str, str]) -> list[str]:
    return [
        slugs.get(labels.tenant_id, labels.tenant_id),
        labels.model,
        numbers.get(labels.version_id, labels.version_id),
        labels.endpoint,
        labels.sla_class,
    ]
