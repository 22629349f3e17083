"""The latency receipt: response headers that say where each millisecond went, and what it cost.

`Server-Timing` holds six parts in milliseconds; the first five sum to `total`. `gateway` is what the other
parts do not explain: parsing, tokenising, both ways over the link, encoding.
"""

from __future__ import annotations

from typing import NamedTuple

from serving.gateway.routing import Lane
from serving.prices import PARTS_PER_UNIT
from serving.wire import Stages

# One formatting operation per answer; a list of header pairs costs three times as much.
_LINES = (
    b"x-request-id: %b\r\n"
    b"server-timing: gateway;dur=%.3f, queue;dur=%.3f, batch_wait;dur=%.3f, execute;dur=%.3f, post;dur=%.3f, "
    b"total;dur=%.3f\r\n"
    b"x-tidegate-model-version: %b\r\n"
    b"x-tidegate-batch-size: %d\r\n"
    b"x-tidegate-batch-close: %b\r\n"
    b"x-tidegate-device-ms: %.3f\r\n"
    b"x-tidegate-cost: %.9f\r\n"
    b"x-tidegate-predicted-ms: %.3f\r\n"
)
_INTERRUPTED = b"x-tidegate-interrupted-ms: %.3f\r\n"


class Spent(NamedTuple):
    """Time as the gateway saw it, microseconds, and what the request costs."""

    gateway_us: int
    total_us: int
    cost_parts: int = 0
    """`serving.prices.PARTS_PER_UNIT` of them are one unit of the currency."""

    @property
    def cost(self) -> float:
        """In units of the currency."""
        return self.cost_parts / PARTS_PER_UNIT


def spent(stages: Stages, total_us: int, cost_parts: int = 0) -> Spent:
    """`total_us` is measured here; the worker's parts are taken as they are."""
    in_worker_us = (
        stages.queue_us + stages.batch_wait_us + stages.execute_us + stages.interrupted_us + stages.post_us
    )
    total_us = max(total_us, in_worker_us)
    return Spent(total_us - in_worker_us, total_us, cost_parts)


def receipt_lines(request_id: str, lane: Lane, stages: Stages, spent: Spent) -> bytes:
    """Header lines of one good answer; `execute` includes interruptions by urgent batches."""
    lines = _LINES % (
        request_id.encode(),
        spent.gateway_us / 1000,
        stages.queue_us / 1000,
        stages.batch_wait_us / 1000,
        (stages.execute_us + stages.interrupted_us) / 1000,
        stages.post_us / 1000,
        spent.total_us / 1000,
        lane.number_header,
        stages.batch_rows,
        stages.close.encode(),
        stages.device_us / 1000,
        spent.cost_parts / PARTS_PER_UNIT,
        stages.predicted_us / 1000,
    )
    return lines + _INTERRUPTED % (stages.interrupted_us / 1000) if stages.interrupted_us else lines
