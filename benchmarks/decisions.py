"""What the scheduler's decisions cost with 2,000 works queued: `python -m benchmarks.decisions`."""

from __future__ import annotations

import random
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from itertools import count
from typing import Any

import msgspec

from benchmarks import machine
from serving.contract import CostCurve, SlaClass
from serving.scheduling.cost import CostModel
from serving.scheduling.scheduler import Scheduler
from serving.scheduling.work import Batch, Work

QUEUED, TENANTS, BATCHES, PAUSES = 2000, 100, 400, 5
_CLASSES: tuple[SlaClass, ...] = ("interactive", "standard", "batch")


class Decision(msgspec.Struct, kw_only=True):
    """Microseconds of one call of the scheduler."""

    call: str
    p50_us: float
    p99_us: float


class _Stopwatch:
    def __init__(self) -> None:
        self._taken_s: defaultdict[str, list[float]] = defaultdict(list)

    def call(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        began = time.perf_counter()
        answer = function(*arguments)
        self._taken_s[name].append(time.perf_counter() - began)
        return answer

    def decisions(self) -> list[Decision]:
        return [
            Decision(call=name, p50_us=_percentile_us(taken, 0.5), p99_us=_percentile_us(taken, 0.99))
            for name, taken in self._taken_s.items()
        ]


class _Play:
    """A queue that is kept full while batches run in virtual time, each paused a few times."""

    def __init__(self) -> None:
        self._rng = random.Random(1)
        curve = CostCurve(a_ms=3.5, b_ms_per_row=0.0, c_ms_per_token=0.225)
        self._scheduler = Scheduler(32, CostModel(curve))
        self._ids = count(1)
        self._now = 0.0
        self.watch = _Stopwatch()

    def run(self) -> None:
        for _ in range(BATCHES):
            while self._scheduler.queued_work < QUEUED:
                self.watch.call("submit", self._scheduler.submit, self._work(), self._now)
            batch = self.watch.call("next_batch", self._scheduler.next_batch, self._now)
            self._execute(batch)

    def _execute(self, batch: Batch) -> None:
        for _ in range(PAUSES):
            self._now += batch.predicted_s / (PAUSES + 1)
            self._interrupt(batch)
        self._complete(batch)

    def _interrupt(self, batch: Batch) -> None:
        urgent = self.watch.call("urgent_batch", self._scheduler.urgent_batch, self._now, batch)
        if urgent is not None:
            self._now += urgent.predicted_s
            self._complete(urgent)

    def _complete(self, batch: Batch) -> None:
        took_s = batch.predicted_s * self._rng.uniform(0.95, 1.05)
        self.watch.call("complete", self._scheduler.complete, batch, took_s, self._now)

    def _work(self) -> Work:
        return Work(
            id=next(self._ids),
            tenant_id=f"t{self._rng.randrange(TENANTS)}",
            sla_class=self._rng.choice(_CLASSES),
            rows=1,
            tokens=self._rng.randint(10, 14),
            arrived=self._now,
            deadline=self._now + 600.0,
        )


def measure() -> list[Decision]:
    play = _Play()
    play.run()
    return play.watch.decisions()


def _percentile_us(taken_s: list[float], share: float) -> float:
    ordered = sorted(taken_s)
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1e6, 1)


def main() -> None:
    if len(sys.argv) > 1:
        machine.pin(int(sys.argv[1]))
    sys.stdout.buffer.write(msgspec.json.encode(measure()) + b"\n")


if __name__ == "__main__":
    main()
