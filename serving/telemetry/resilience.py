"""`/metrics`: what a gateway does about failures. One row per version that has replicas, so all labels are bounded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

LABELS = ("model", "version")


@dataclass(frozen=True, slots=True)
class ReplicaRow:
    """One replica and its breaker."""

    replica: str
    is_accepting: bool
    state: int
    """Of its circuit for everyone: 0 closed, 1 half-open, 2 open."""
    tenants_stopped: int
    opened: int


@dataclass(frozen=True, slots=True)
class VersionRow:
    model: str
    version: str
    retried: int
    not_retried: int
    """Lost requests the budget had no retry for."""
    retries_left: int
    fallbacks: dict[str, int] = field(default_factory=dict)
    shed: tuple[str, ...] = ()
    """Classes turned away now for the sake of higher ones."""
    replicas: tuple[ReplicaRow, ...] = ()


class Resilience(Collector):
    def __init__(self, rows: Iterable[VersionRow]) -> None:
        self._rows = list(rows)

    def collect(self) -> Iterator[Metric]:
        yield self._retries()
        left = GaugeMetricFamily("tidegate_retry_budget", "Retries the budget allows now", labels=LABELS)
        for row in self._rows:
            left.add_metric([row.model, row.version], row.retries_left)
        yield left
        yield self._fallbacks()
        yield self._shed()
        yield from self._replicas()

    def _retries(self) -> Metric:
        family = CounterMetricFamily(
            "tidegate_retries", "Lost requests by what became of them", labels=[*LABELS, "outcome"]
        )
        for row in self._rows:
            family.add_metric([row.model, row.version, "retried"], row.retried)
            family.add_metric([row.model, row.version, "refused"], row.not_retried)
        return family

    def _fallbacks(self) -> Metric:
        family = CounterMetricFamily(
            "tidegate_fallbacks", "Requests that the version's fallback answered", labels=[*LABELS, "reason"]
        )
        for row in self._rows:
            for reason, count in sorted(row.fallbacks.items()):
                family.add_metric([row.model, row.version, reason], count)
        return family

    def _shed(self) -> Metric:
        family = GaugeMetricFamily(
            "tidegate_shedding", "1 while the class is turned away", labels=[*LABELS, "class"]
        )
        for row in self._rows:
            for sla_class in row.shed:
                family.add_metric([row.model, row.version, sla_class], 1)
        return family

    def _replicas(self) -> Iterator[Metric]:
        names = [*LABELS, "replica"]
        accepting = GaugeMetricFamily(
            "tidegate_replica_accepting", "1 while this gateway may send there", labels=names
        )
        state = GaugeMetricFamily("tidegate_circuit_state", "0 closed, 1 half-open, 2 open", labels=names)
        stopped = GaugeMetricFamily(
            "tidegate_circuit_tenants_stopped", "Tenants whose own circuit is open", labels=names
        )
        opened = CounterMetricFamily("tidegate_circuit_opened", "Circuits that opened", labels=names)
        for row in self._rows:
            for replica in row.replicas:
                labels = [row.model, row.version, replica.replica]
                accepting.add_metric(labels, replica.is_accepting)
                state.add_metric(labels, replica.state)
                stopped.add_metric(labels, replica.tenants_stopped)
                opened.add_metric(labels, replica.opened)
        yield from (accepting, state, stopped, opened)
