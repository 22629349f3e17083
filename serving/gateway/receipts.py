"""The latency receipt: response headers that say where each millisecond went, and what it cost.

`Server-Timing` holds six parts in milliseconds; the first five sum to `total`. `gateway` is what the other
parts do not explain: parsing, tokenising, both ways over the link, encoding.
"""

from __future__ import annotations

from typing import NamedTuple

from serving.gateway.exchange import Headers
from serving.gateway.routing import Lane
from serving.wire import Stages

_US_PER_HOUR = 3_600_000_000

_TIMING = (
    b"gateway;dur=%.3f, queue;dur=%.3f, batch_wait;dur=%.3f, execute;dur=%.3f, post;dur=%.3f, total;dur=%.3f"
)


class Spent(NamedTuple):
    """Time as the gateway saw it, microseconds."""

    gateway_us: int
    total_us: int


def spent(stages: Stages, total_us: int) -> Spent:
    """`total_us` is measured here; the worker's parts are taken as they are."""
    in_worker_us = (
        stages.queue_us + stages.batch_wait_us + stages.execute_us + stages.interrupted_us + stages.post_us
    )
    total_us = max(total_us, in_worker_us)
    return Spent(total_us - in_worker_us, total_us)


def receipt(lane: Lane, stages: Stages, spent: Spent) -> Headers:
    """Headers of one good answer; `execute` includes interruptions by urgent batches."""
    cost = stages.device_us * lane.version.price_micro_per_device_hour / _US_PER_HOUR / 1e6
    return [
        (
            b"server-timing",
            _TIMING
            % (
                spent.gateway_us / 1000,
                stages.queue_us / 1000,
                stages.batch_wait_us / 1000,
                (stages.execute_us + stages.interrupted_us) / 1000,
                stages.post_us / 1000,
                spent.total_us / 1000,
            ),
        ),
        (b"x-tidegate-model-version", lane.number_header),
        (b"x-tidegate-batch-size", b"%d" % stages.batch_rows),
        (b"x-tidegate-batch-close", stages.close.encode()),
        (b"x-tidegate-device-ms", b"%.3f" % (stages.device_us / 1000)),
        (b"x-tidegate-cost", b"%.9f" % cost),
        (b"x-tidegate-predicted-ms", b"%.3f" % (stages.predicted_us / 1000)),
    ]
