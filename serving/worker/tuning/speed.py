"""How fast an engine runs samples, batch by batch, as serving would: many requests of one row each."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

from serving.worker import whole_batch
from serving.worker.engines.contract import Engine, EngineInput

BATCH_ROWS = (1, 8, 32)
ENOUGH_S = 1.0
"""A batch size is measured for at least so long…"""
LEAST_PASSES = 3
MOST_S = 8.0
"""…and begins no further pass after so long."""


def batches_of(items: Sequence[EngineInput], rows: int) -> list[list[EngineInput]]:
    """Every item once, in order, the last batch filled up from the front: all batches have `rows` rows."""
    count = -(-len(items) // rows)
    return [
        [items[(first + at) % len(items)] for at in range(rows)] for first in range(0, count * rows, rows)
    ]


def measure(engine: Engine, items: Sequence[EngineInput]) -> tuple[dict[int, float], float]:
    """Rows per second by batch size, and the median milliseconds of a batch of one."""
    rates: dict[int, float] = {}
    p50_ms = 0.0
    for rows in BATCH_ROWS:
        if rows > engine.max_batch_rows:
            continue
        batches = batches_of(items, rows)
        _pass_s(engine, batches)  # a shape that warm-up did not cover is compiled here
        passes = _timed(engine, batches)
        rates[rows] = round(statistics.median(rows * len(each) / sum(each) for each in passes), 2)
        if rows == 1:
            p50_ms = round(statistics.median(seconds for each in passes for seconds in each) * 1e3, 4)
    return rates, p50_ms


def _timed(engine: Engine, batches: Sequence[Sequence[EngineInput]]) -> list[list[float]]:
    passes: list[list[float]] = []
    spent_s = 0.0
    while (len(passes) < LEAST_PASSES or spent_s < ENOUGH_S) and spent_s < MOST_S:
        passes.append(_pass_s(engine, batches))
        spent_s += sum(passes[-1])
    return passes


def _pass_s(engine: Engine, batches: Sequence[Sequence[EngineInput]]) -> list[float]:
    times = []
    for batch in batches:
        began = time.perf_counter()
        whole_batch.run(engine, batch)
        times.append(max(time.perf_counter() - began, 1e-9))
    return times
