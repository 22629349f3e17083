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
    b"server-timing: gateway;dur=%b, queue;dur=%b, batch_wait;dur=%b, execute;dur=%b, post;dur=%b, "
    b"total;dur=%b\r\n"
    b"x-tidegate-model-version: %b\r\n"
    b"x-tidegate-batch-size: %d\r\n"
    b"x-tidegate-batch-close: %b\r\n"
    b"x-tidegate-device-ms: %b\r\n"
    b"x-tidegate-cost: %.9f\r\n"
    b"x-tidegate-predicted-ms: %b\r\n"
)
_INTERRUPTED = b"x-tidegate-interrupted-ms: %b\r\n"


class _Milliseconds(dict[int, bytes]):
    """Microseconds → milliseconds as text. Short times are written once: looking one up costs a fifth."""

    def __missing__(self, us: int) -> bytes:
        text = b"%.3f" % (us / 1000)
        if 0 <= us < TABLED_US:
            self[us] = text
        return text


TABLED_US = 1 << 14
_ms = _Milliseconds()


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


_new_spent = tuple.__new__
"""Half the cost of calling the named tuple."""


def spent(stages: Stages, total_us: int, cost_parts: int = 0) -> Spent:
    """`total_us` is measured here; the worker's parts are taken as they are."""
    in_worker_us = (
        stages.queue_us + stages.batch_wait_us + stages.execute_us + stages.interrupted_us + stages.post_us
    )
    if total_us < in_worker_us:
        total_us = in_worker_us
    return _new_spent(Spent, (total_us - in_worker_us, total_us, cost_parts))


def receipt_lines(request_id: str, lane: Lane, stages: Stages, spent: Spent) -> bytes:
    """Header lines of one good answer; `execute` includes interruptions by urgent batches."""
    lines = _LINES % (
        request_id.encode(),
        _ms[spent.gateway_us],
        _ms[stages.queue_us],
        _ms[stages.batch_wait_us],
        _ms[stages.execute_us + stages.interrupted_us],
        _ms[stages.post_us],
        _ms[spent.total_us],
        lane.number_header,
        stages.batch_rows,
        stages.close.encode(),
        _ms[stages.device_us],
        spent.cost_parts / PARTS_PER_UNIT,
        _ms[stages.predicted_us],
    )
    return lines + _INTERRUPTED % _ms[stages.interrupted_us] if stages.interrupted_us else lines
