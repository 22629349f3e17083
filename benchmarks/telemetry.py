"""What a second of telemetry costs the controller: `python -m benchmarks.telemetry`.

1,000 tenants with 20 models each, counted by five gateways. Each second the frames are decoded, merged, closed
into the live picture, and every tenth second rolled up into a slice; a rule's reading of the last minute by
tenant and model goes with it. CPU time of this process, since other work on the machine is none of it; without
Valkey and PostgreSQL.
"""

from __future__ import annotations

import argparse
import os
import random
import time

import msgspec

from benchmarks import machine
from serving.settling import settle_memory
from serving.telemetry.collector import COLLECT_EACH, LAG_S, Collector
from serving.telemetry.frames import STAGES, LiveFrame, Series, decode_frame, encode_frame, slots_of
from serving.telemetry.histogram import Histogram, bucket_of
from serving.telemetry.windows import SLICE_S

TENANTS, MODELS, GATEWAYS = 1000, 20, 5
START = 1_000_000


class TelemetryCost(msgspec.Struct, kw_only=True):
    """CPU milliseconds per second of traffic, mean and worst second."""

    active_share: float
    """Of the series, how many answered something in a second."""
    series: int
    decode_ms: float
    merge_ms: float
    step_ms: float
    read_ms: float
    total_ms: float
    worst_ms: float


def _series(tenant: int, model: int, rng: random.Random) -> Series:
    count = rng.randint(1, 3)
    histograms = {stage: Histogram() for stage in STAGES}
    for histogram in histograms.values():
        for _ in range(count):
            histogram.record(rng.randint(500, 40_000))
    histograms["batch_rows"] = Histogram({bucket_of(count): count}, count * count)
    return Series(
        f"tnt_{tenant:04}", f"model-{model}", f"mv_{model}", "infer", "interactive", 50_000, count, {}, count,
        count, 9 * count, 700 * count, 3 * count, count // 2, {"full": count}, slots_of(histograms.items()), 1,
    )  # fmt: skip


def _second(active: float, rng: random.Random) -> list[Series]:
    pairs = [(tenant, model) for tenant in range(TENANTS) for model in range(MODELS)]
    chosen = pairs if active >= 1 else rng.sample(pairs, round(len(pairs) * active))
    return [_series(tenant, model, rng) for tenant, model in chosen]


def _frames(series: list[Series], at: float, sequence: int) -> list[bytes]:
    return [
        encode_frame(LiveFrame(f"gateway-{g}", 1, sequence, at, 1.0, tuple(series[g::GATEWAYS])))
        for g in range(GATEWAYS)
    ]


class _Clock:
    def __init__(self) -> None:
        self.spent: dict[str, list[float]] = {}

    def lap(self, name: str, since: float) -> float:
        now = time.process_time()
        self.spent.setdefault(name, []).append((now - since) * 1000)
        return now

    def mean(self, name: str) -> float:
        return round(sum(self.spent[name]) / len(self.spent[name]), 1)


def measure(active: float, seconds: int, warm_s: int) -> TelemetryCost:
    rng = random.Random(7)
    variants = [_second(active, rng) for _ in range(3)]
    collector, clock = Collector(), _Clock()
    for second in range(seconds + warm_s):
        if second == warm_s:
            clock = _Clock()
        _one(
            collector,
            clock,
            _frames(variants[second % 3], START + second + 1.0, second),
            START + second + 1.0,
        )
    totals = [sum(parts) for parts in zip(*clock.spent.values(), strict=True)]
    return TelemetryCost(
        active_share=active,
        series=TENANTS * MODELS,
        decode_ms=clock.mean("decode"),
        merge_ms=clock.mean("merge"),
        step_ms=clock.mean("step"),
        read_ms=clock.mean("read"),
        total_ms=round(sum(totals) / len(totals), 1),
        worst_ms=round(max(totals), 1),
    )


def _one(collector: Collector, clock: _Clock, raws: list[bytes], at: float) -> None:
    begun = time.process_time()
    frames = [decode_frame(raw) for raw in raws]
    begun = clock.lap("decode", begun)
    for frame in frames:
        collector.add(frame, at)
    begun = clock.lap("merge", begun)
    collector.step(at + LAG_S, ())
    collector.take_slices()
    begun = clock.lap("step", begun)
    if int(at) % SLICE_S == 0:
        collector.windows.read(60, at, ("tenant_id", "model"))
    clock.lap("read", begun)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--active", type=float, nargs="*", default=[0.1, 1.0])
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--warm", type=int, default=25)
    options = parser.parse_args()
    machine.go_first(os.getpid())
    settle_memory(COLLECT_EACH)
    for active in options.active:
        print(msgspec.json.encode(measure(active, options.seconds, options.warm)).decode())


if __name__ == "__main__":
    main()
