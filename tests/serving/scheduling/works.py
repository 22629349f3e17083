"""Works, schedulers and loads for these tests: the measured curve of MiniLM in fp32 on one core."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from serving.contract import CostCurve
from serving.scheduling.cost import CostModel
from serving.scheduling.policy import Policy
from serving.scheduling.scheduler import Scheduler
from serving.scheduling.simulate import Device, Simulation, Traffic
from serving.scheduling.work import Work

CURVE = CostCurve(a_ms=3.5, b_ms_per_row=0.0, c_ms_per_token=0.225)
_ids = count(1)


def work(
    tenant_id: str = "acme", sla_class: Any = "batch", now: float = 0.0, within_s: float = 60.0, **more: Any
) -> Work:
    fields: dict[str, Any] = {"rows": 1, "tokens": 12} | more
    return Work(
        id=next(_ids),
        tenant_id=tenant_id,
        sla_class=sla_class,
        arrived=now,
        deadline=now + within_s,
        **fields,
    )


def scheduler(
    *,
    curve: CostCurve | None = CURVE,
    max_batch_rows: int = 32,
    can_yield: bool = True,
    policy: Policy | None = None,
) -> Scheduler:
    return Scheduler(
        max_batch_rows, CostModel(curve), can_yield=can_yield, segments=18 if can_yield else 1, policy=policy
    )


def poisson(rate: float, rng: random.Random) -> Iterator[float]:
    while True:
        yield rng.expovariate(rate)


def short(rng: random.Random) -> Callable[[], int]:
    return lambda: rng.randint(10, 14)


def mixed(rng: random.Random) -> Callable[[], int]:
    return lambda: rng.randint(8, 100)


def interactive(name: str, rate: float, rng: random.Random, **more: Any) -> Traffic:
    fields: dict[str, Any] = {"target_s": 0.05, "deadline_s": 0.2} | more
    return Traffic(name, "interactive", short(rng), gaps=poisson(rate, rng), **fields)


def bulk(name: str, outstanding: int, tokens: Callable[[], int], **more: Any) -> Traffic:
    return Traffic(name, "batch", tokens, outstanding=outstanding, **more)


def play(
    traffics: list[Traffic],
    rng: random.Random,
    *,
    seconds: float = 20.0,
    can_yield: bool = True,
    noise: float = 0.07,
    believed: CostCurve | None = CURVE,
    factors: Callable[[], float] | None = None,
    policy: Policy | None = None,
) -> Simulation:
    factors = factors or (lambda: 1.0 + rng.uniform(-noise, noise))
    device = Device(CURVE, factors, segments=18 if can_yield else 1)
    subject = scheduler(curve=believed, can_yield=can_yield, policy=policy)
    simulation = Simulation(subject, device, traffics)
    simulation.run(seconds)
    return simulation
