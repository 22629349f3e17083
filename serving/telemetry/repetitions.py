"""`/metrics`: what became of requests with an `Idempotency-Key`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector


class Repetitions(Collector):
    """`counts` by outcome: `began replayed in_flight reused not_kept unavailable`."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        self._counts = counts

    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily(
            "tidegate_idempotency_keys",
            "Requests with an Idempotency-Key by what came of it",
            labels=["outcome"],
        )
        for outcome, count in self._counts.items():
            family.add_metric([outcome], count)
        yield family
