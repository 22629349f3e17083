"""The scheduler's simulator on one replica or a thousand: SLA kept, throughput, fairness.

    python -m benchmarks.simulate --replicas 1,10,100 --seconds 5
    python -m benchmarks.simulate --device gpu --trace arrivals.jsonl     recorded arrivals, see traces.py

Without a trace, per replica: interactive requests within 50 ms at a tenth of the device, and three bulk
tenants of weights 1:2:4 that always have work waiting.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from benchmarks import traces
from serving.contract import CostCurve
from serving.scheduling.cost import CostModel
from serving.scheduling.scheduler import Scheduler
from serving.scheduling.simulate import Device, Simulation, Tally, Traffic

WEIGHTS = {"bronze": 1.0, "silver": 2.0, "gold": 4.0}
URGENT_SHARE = 0.1
BULK_PER_REPLICA = 96
NOISE = 0.07
THINK_S = 0.002
MOST_REPLICAS = 10_000
MOST_SECONDS = 86_400.0


class Kind(msgspec.Struct, frozen=True):
    """A device: what batches cost, how many rows fit, in how many pieces a batch runs."""

    curve: CostCurve
    max_batch_rows: int
    segments: int
    tokens: tuple[int, int]
    """Shortest and longest request."""


KINDS = {
    "cpu": Kind(CostCurve(a_ms=4.3, b_ms_per_row=0.0, c_ms_per_token=0.23), 32, 18, (10, 14)),
    "gpu": Kind(CostCurve(a_ms=5.0, b_ms_per_row=0.1, c_ms_per_token=0.0), 64, 1, (10, 14)),
}
"""MiniLM on one core, as measured; a GPU that costs 5 ms and 0.1 ms a row, and does not pause."""


class TenantFigures(msgspec.Struct, kw_only=True):
    tenant: str
    sla_class: str
    answered_per_s: float
    kept_share: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    device_share: float


class Figures(msgspec.Struct, kw_only=True):
    replicas: int
    seconds: float
    total_per_s: float
    busy_share: float
    unfairness: float
    """Most that a tenant's part of its class's device time differs from its weight's."""
    tenants: list[TenantFigures]


def simulate(kind: Kind, traffics: list[Traffic], replicas: int, seconds: float, seed: int) -> Figures:
    rng = random.Random(seed)
    can_yield = kind.segments > 1
    schedulers = [
        Scheduler(kind.max_batch_rows, CostModel(kind.curve), can_yield=can_yield, segments=kind.segments)
        for _ in range(replicas)
    ]
    device = Device(kind.curve, lambda: 1.0 + rng.uniform(-NOISE, NOISE), segments=kind.segments)
    simulation = Simulation(schedulers, device, traffics, draw=rng.random)
    simulation.run(seconds, drains=False)
    busy_s, elapsed_s = simulation.busy_s, max(simulation.now, 1e-9)
    return Figures(
        replicas=replicas,
        seconds=seconds,
        total_per_s=round(sum(tally.answered for tally in simulation.tallies) / elapsed_s, 1),
        busy_share=round(busy_s / elapsed_s / replicas, 4),
        unfairness=round(_unfairness(traffics, simulation.tallies), 4),
        tenants=[
            _tenant(traffic, tally, busy_s, elapsed_s)
            for traffic, tally in zip(traffics, simulation.tallies, strict=True)
        ],
    )


def synthetic(kind: Kind, replicas: int, seed: int) -> list[Traffic]:
    rng = random.Random(seed + 1)

    def tokens() -> int:
        return rng.randint(*kind.tokens)

    alone_s = Device(kind.curve).expected_s(1, sum(kind.tokens) // 2)
    rate = replicas * URGENT_SHARE / alone_s
    urgent = Traffic("chat", "interactive", tokens, gaps=_poisson(rate, rng), target_s=0.05, deadline_s=1.0)
    return [urgent, *(_bulk(name, weight, tokens, replicas) for name, weight in WEIGHTS.items())]


def _bulk(name: str, weight: float, tokens: Callable[[], int], replicas: int) -> Traffic:
    return Traffic(
        name,
        "batch",
        tokens,
        outstanding=BULK_PER_REPLICA * replicas,
        think_s=THINK_S,
        target_s=30.0,
        weight=weight,
        max_batch_size=1 << 16,
        max_queue=1 << 30,
    )


def _poisson(rate: float, rng: random.Random) -> Iterator[float]:
    while True:
        yield rng.expovariate(rate)


def _unfairness(traffics: list[Traffic], tallies: list[Tally]) -> float:
    """Among closed-loop traffics of one class: only those always have work waiting."""
    worst = 0.0
    closed = [each for each in zip(traffics, tallies, strict=True) if each[0].outstanding]
    for traffic, tally in closed:
        peers = [each for each in closed if each[0].sla_class == traffic.sla_class]
        used_s = sum(other.device_s for _, other in peers) or 1.0
        weight = traffic.weight / sum(other.weight for other, _ in peers)
        worst = max(worst, abs(tally.device_s / used_s - weight))
    return worst


def _tenant(traffic: Traffic, tally: Tally, busy_s: float, elapsed_s: float) -> TenantFigures:
    p50, p95, p99 = (round(tally.percentile_s(share) * 1e3, 1) for share in (0.5, 0.95, 0.99))
    return TenantFigures(
        tenant=traffic.tenant_id,
        sla_class=traffic.sla_class,
        answered_per_s=round(tally.answered / elapsed_s, 1),
        kept_share=round(tally.kept_share, 4),
        p50_ms=p50,
        p95_ms=p95,
        p99_ms=p99,
        device_share=round(tally.device_s / busy_s, 4) if busy_s else 0.0,
    )


def table(figures: list[Figures]) -> str:
    lines = [
        "| replicas | tenant | class | answers/s | kept | p50/p95/p99 ms | of the devices |",
        "|---|---|---|---|---|---|---|",
    ]
    for each in figures:
        lines += [
            f"| {each.replicas} | {row.tenant} | {row.sla_class} | {row.answered_per_s:,.0f} "
            f"| {row.kept_share:.2%} | {row.p50_ms}/{row.p95_ms}/{row.p99_ms} | {row.device_share:.1%} |"
            for row in each.tenants
        ]
        lines.append(
            f"| {each.replicas} | **all** | | {each.total_per_s:,.0f} | "
            f"| busy {each.busy_share:.1%}, unfair by {each.unfairness:.1%} | |"
        )
    return "\n".join(lines)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.simulate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--replicas", type=_counts, default=[1, 10], help="counts, separated by commas")
    parser.add_argument("--seconds", type=_seconds, default=5.0, help="of virtual time")
    parser.add_argument("--device", choices=sorted(KINDS), default="cpu")
    parser.add_argument("--trace", type=Path, help="recorded arrivals instead of synthetic ones")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="figures as JSON instead of a table")
    return parser.parse_args(argv)


def _counts(text: str) -> list[int]:
    counts = [int(part) for part in text.split(",") if part.strip().isdecimal()]
    if len(counts) != text.count(",") + 1 or not all(1 <= count <= MOST_REPLICAS for count in counts):
        raise argparse.ArgumentTypeError(f"counts from 1 to {MOST_REPLICAS}, separated by commas")
    return counts


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds <= MOST_SECONDS:
        raise argparse.ArgumentTypeError(f"more than 0, at most {MOST_SECONDS:.0f}")
    return seconds


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _arguments(argv)
    kind, figures = KINDS[arguments.device], []
    for replicas in arguments.replicas:
        if arguments.trace is None:
            traffics = synthetic(kind, replicas, arguments.seed)
        else:
            try:
                with arguments.trace.open("rb") as lines:
                    traffics = traces.read(lines)
            except (OSError, traces.BadTrace) as error:
                print(error, file=sys.stderr)
                return 2
        figures.append(simulate(kind, traffics, replicas, arguments.seconds, arguments.seed))
    print(msgspec.json.encode(figures).decode() if arguments.json else table(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
