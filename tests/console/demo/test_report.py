"""What the demo prints is true: percentiles by rank, failures counted against the promise, parts of a receipt."""

from __future__ import annotations

import math

from console.demo.load import Answer, Outcome
from console.demo.report import parse_server_timing, percentile, receipt, table, typical

HEADERS = {
    "x-request-id": "req_1",
    "server-timing": "gateway;dur=1.000, queue;dur=2.000, batch_wait;dur=0.500, execute;dur=6.000, post;dur=0.500, total;dur=10.000",
    "x-tidegate-batch-size": "4",
    "x-tidegate-device-ms": "1.5",
    "x-tidegate-cost": "0.000002",
}


def answer(latency_ms: float, status: int = 200) -> Answer:
    return Answer(status, latency_ms, HEADERS if status == 200 else {})


def test_percentiles_are_ranks_and_nothing_has_none() -> None:
    assert percentile([3.0, 1.0, 2.0, 4.0], 0.5) == 2.0
    assert percentile([3.0, 1.0, 2.0, 4.0], 0.99) == 4.0
    assert math.isnan(percentile([], 0.5))


def test_a_failed_request_breaks_the_promise_too() -> None:
    outcome = Outcome("acme-chat", [answer(10), answer(20), answer(90), answer(5, status=503)])
    row = table([outcome], {"acme-chat": 50.0}).splitlines()[-1].split()
    assert row[:3] == ["acme-chat", "4", "1"]
    assert "50.0%" in row
    assert row[-2:] == ["4", "0.000006"]


def test_a_receipt_names_every_stage_and_the_total() -> None:
    text = receipt(answer(10))
    for part in ("req_1", "gateway", "queue", "batch_wait", "execute", "post", "10.000 ms", "batch-size 4"):
        assert part in text


def test_the_receipt_shown_is_that_of_the_answer_in_the_middle() -> None:
    assert typical([answer(50), answer(1), answer(7)]).latency_ms == 7


def test_server_timing_is_read_by_name() -> None:
    assert parse_server_timing("a;dur=1.5, b;dur=2")["b"] == 2.0
    assert parse_server_timing("") == {}
