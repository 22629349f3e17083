"""One candidate of a tuning run: load, warm up, answer the samples, compare, measure, say what came out.

The first candidate's answers are the reference; they wait for the others in a file that the agent names.
"""

from __future__ import annotations

import time
from pathlib import Path

import structlog

from serving.contract import Agreement, TuningRow
from serving.errors import DataPlaneError
from serving.worker import artifact, engines, memory, whole_batch
from serving.worker.engines.contract import DeviceLost, Engine, EngineInput, LoadFailed
from serving.worker.spec import TuningSpec, WorkerSpec
from serving.worker.tuning import agreement, samples, speed

log = structlog.get_logger(__name__)

COMPARED_ROWS = 8
"""Rows of a batch whose answers are compared."""


def measure(spec: WorkerSpec, tuning: TuningSpec) -> TuningRow:
    """Never raises: a candidate that cannot run is a row with `ok=False` and a reason."""
    try:
        return _measured(spec, tuning, engines.create(spec.version, spec.device, spec.threads))
    except (LoadFailed, DeviceLost, DataPlaneError) as error:
        reason = str(error)
    except MemoryError:
        reason = "the host has not enough memory for this candidate"
    except Exception as error:  # top of the process: the model's code may raise anything
        log.exception("tuning.crashed")
        reason = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:300]}"
    return TuningRow(index=tuning.index, ok=False, reason=reason)


def _measured(spec: WorkerSpec, tuning: TuningSpec, engine: Engine) -> TuningRow:
    artifact.verify(spec.version)
    before_bytes, began = memory.resident_bytes(), time.perf_counter()
    engine.load()
    engine.warm_up()
    load_s = time.perf_counter() - began
    items = samples.items(engine, spec.version, tuning.texts, tuning.tensors)
    agreed = _agreement(engine, items, tuning)
    rows_per_s, p50_ms = speed.measure(engine, items)
    memory.settle()
    return TuningRow(
        index=tuning.index,
        ok=True,
        rows_per_s=rows_per_s,
        p50_ms=p50_ms,
        memory_bytes=memory.device_bytes(spec.device, before_bytes),
        load_s=round(load_s, 3),
        agreement=agreed,
        notes=engine.notes(),
    )


def _agreement(engine: Engine, items: list[EngineInput], tuning: TuningSpec) -> Agreement:
    rows = min(COMPARED_ROWS, engine.max_batch_rows)
    outputs = [
        answer
        for first in range(0, len(items), rows)
        for answer in whole_batch.run(engine, items[first : first + rows])
    ]
    found, file = agreement.rows_of(outputs), Path(tuning.reference)
    if tuning.index == 0:
        agreement.save(file, found)
    try:
        reference = agreement.load(file)
    except (OSError, ValueError) as error:
        raise LoadFailed(f"the reference's answers cannot be read: {error}") from error
    return agreement.compare(reference, found)
