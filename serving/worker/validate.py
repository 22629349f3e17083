"""Validation: load a version once, warm it up, measure its memory and its cost curve, say what came out.

Measured, not declared: placement, scheduling and the console's promises all use these figures.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence

import structlog

from serving.contract import MeasuredPoint, ValidationReport
from serving.errors import DataPlaneError
from serving.worker import artifact, engines, memory, whole_batch
from serving.worker.curve import fit
from serving.worker.engines.batching import buckets
from serving.worker.engines.contract import DeviceLost, Engine, EngineInput, LoadFailed
from serving.worker.spec import WorkerSpec

log = structlog.get_logger(__name__)

BUDGET_S = 15.0
"""Time for the sweep as a whole; smaller batches are measured first."""
LEAST_RUNS = 3
MOST_RUNS = 9
ENOUGH_S = 0.4
"""A point that took so long needs no more than `LEAST_RUNS`."""

_SWEEP = (
    (1, 8),
    (1, 16),
    (2, 24),
    (1, 32),
    (4, 48),
    (1, 64),
    (8, 96),
    (1, 128),
    (4, 128),
    (16, 192),
    (1, 256),
    (8, 256),
    (32, 384),
    (8, 512),
)
"""(rows, tokens) for engines with tokens, the sizes that real batches have."""


def validate(spec: WorkerSpec) -> ValidationReport:
    """Never raises: a version that cannot be served is a report with `ok=False` and a reason."""
    version = spec.version
    try:
        return _measure(spec, engines.create(version, spec.device, spec.threads))
    except (LoadFailed, DeviceLost, DataPlaneError) as error:
        reason = str(error)
    except MemoryError:
        reason = "the host has not enough memory for this version"
    except Exception as error:  # top of the process: the model's code may raise anything
        log.exception("validation.crashed")
        reason = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:300]}"
    return ValidationReport(version_id=version.id, attempt=spec.attempt, ok=False, reason=reason)


def _measure(spec: WorkerSpec, engine: Engine) -> ValidationReport:
    artifact.verify(spec.version)
    before_bytes, began = memory.resident_bytes(), time.perf_counter()
    engine.load()
    loaded = time.perf_counter()
    engine.warm_up()
    warm = time.perf_counter()
    points = tuple(_sweep(engine))
    memory.settle()
    inputs, outputs = engine.signature()
    return ValidationReport(
        version_id=spec.version.id,
        attempt=spec.attempt,
        ok=True,
        inputs=inputs,
        outputs=outputs,
        cost=fit(points),
        points=points,
        memory_bytes=memory.device_bytes(spec.device, before_bytes),
        load_s=round(loaded - began, 3),
        warm_up_s=round(warm - loaded, 3),
        notes=engine.notes(),
    )


def _sweep(engine: Engine) -> Iterator[MeasuredPoint]:
    deadline = time.perf_counter() + BUDGET_S
    for count, (rows, tokens) in enumerate(_sizes(engine)):
        if count >= 3 and time.perf_counter() > deadline:
            log.warning("validation.sweep_cut", measured=count)
            return
        execute_ms = statistics.median(_times_ms(engine, engine.sample(rows, tokens)))
        yield MeasuredPoint(rows=rows, tokens=tokens, execute_ms=round(execute_ms, 4))


def _sizes(engine: Engine) -> Sequence[tuple[int, int]]:
    if not engine.max_tokens:
        return [(rows, rows) for rows in buckets(engine.max_batch_rows)]
    return [
        (rows, tokens)
        for rows, tokens in _SWEEP
        if rows <= engine.max_batch_rows and tokens <= rows * engine.max_tokens
    ]


def _times_ms(engine: Engine, item: EngineInput) -> list[float]:
    whole_batch.run(engine, [item])  # a shape that warm-up did not cover is compiled here
    times: list[float] = []
    while len(times) < LEAST_RUNS or (len(times) < MOST_RUNS and sum(times) < ENOUGH_S * 1e3):
        began = time.perf_counter()
        whole_batch.run(engine, [item])
        times.append((time.perf_counter() - began) * 1e3)
    return times
