"""What the simulator says of a contended case: the scheduler itself, in virtual time, on the measured curve."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from benchmarks.cases import Case, Stream
from benchmarks.results import Prediction
from benchmarks.stack import PROFILES
from benchmarks.texts import LENGTHS
from serving.contract import CostCurve
from serving.scheduling.cost import CostModel
from serving.scheduling.scheduler import Scheduler
from serving.scheduling.simulate import Device, Simulation, Traffic

SECONDS = 60.0
SEGMENTS = 18
"""Pieces of a batch: three of each of MiniLM's six layers."""
MAX_BATCH_ROWS = 32
NOISE = 0.07
"""By how much a batch's time differs from the curve."""


def predict(case: Case, curve: CostCurve, *, seconds: float = SECONDS, seed: int = 1) -> Prediction:
    """Rates count answers, as the generator does; latencies are those of the case's first stream."""
    rng = random.Random(seed)
    traffics = [_traffic(stream, rng) for stream in case.streams]
    device = Device(curve, lambda: 1.0 + rng.uniform(-NOISE, NOISE), segments=SEGMENTS)
    scheduler = Scheduler(MAX_BATCH_ROWS, CostModel(curve), can_yield=True, segments=SEGMENTS)
    simulation = Simulation(scheduler, device, traffics)
    simulation.run(seconds)
    first = simulation.tallies[0]
    return Prediction(
        case=case.name,
        total_per_s=round(sum(tally.answered for tally in simulation.tallies) / simulation.now, 1),
        kept_share=round(first.kept_share, 4),
        p50_ms=round(first.percentile_s(0.5) * 1e3, 2),
        p95_ms=round(first.percentile_s(0.95) * 1e3, 2),
    )


def _traffic(stream: Stream, rng: random.Random) -> Traffic:
    profile = PROFILES[stream.tenant]
    return Traffic(
        stream.tenant,
        profile.sla_class,
        _tokens(stream.texts, rng),
        gaps=_poisson(stream.rate, rng) if stream.rate else None,
        outstanding=0 if stream.rate else stream.connections,
        target_s=profile.target_p95_ms / 1e3,
        deadline_s=profile.deadline_ms / 1e3,
        weight=profile.weight,
        max_queue=profile.max_queue,
    )


def _tokens(texts: str, rng: random.Random) -> Callable[[], int]:
    shortest, longest = LENGTHS[texts]
    return lambda: rng.randint(shortest, longest)


def _poisson(rate: float, rng: random.Random) -> Iterator[float]:
    while True:
        yield rng.expovariate(rate)
