"""Receipts, the ledger, `/metrics`, the live windows and stored slices say the same, however time cuts them."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from serving.control.telemetry.rollup import merged
from serving.gateway.metrics import Metrics
from serving.gateway.usage import Usage
from serving.telemetry.collector import LAG_S, Collector
from serving.telemetry.frames import LiveFrame
from serving.telemetry.tally import Tally, decode_tally
from serving.telemetry.windows import SeriesKey
from tests.serving.gateway.test_counting import PRICE, Outbox, lane, stages

START = 1_000_000
QUIET_S = 30
"""Long enough for every slice to close."""


@dataclass(frozen=True)
class Receipt:
    """What one request used, and in which second and gateway it ended."""

    second: int
    gateway: int
    rows: int
    tokens: int
    device_us: int
    is_failed: bool


receipts = st.lists(
    st.builds(
        Receipt,
        second=st.integers(0, 69),
        gateway=st.integers(0, 1),
        rows=st.integers(1, 64),
        tokens=st.integers(1, 4096),
        device_us=st.integers(0, 5_000_000),
        is_failed=st.booleans(),
    ),
    max_size=40,
)


class Platform:
    """Two gateways' counters, the ledger's rows, and a controller's collector."""

    def __init__(self) -> None:
        self.outbox = Outbox()
        self.usage = [Usage(self.outbox), Usage(self.outbox)]
        self.metrics = [Metrics(), Metrics()]
        self.lanes = [lane(one) for one in self.metrics]
        self.collector = Collector()
        self.collector.step(START + LAG_S)
        self.slices: list[tuple[SeriesKey, bytes]] = []

    def settle(self, receipt: Receipt) -> None:
        """As the gateway does when a request ends."""
        usage, series = self.usage[receipt.gateway], self.lanes[receipt.gateway].series
        used = usage.of(self.lanes[receipt.gateway], "key_a", float(START + receipt.second))
        parts = receipt.device_us * PRICE
        if receipt.is_failed:
            used.count_failure()
            used.add_device_time(receipt.device_us, parts)
            series.failed("engine_failed")
            series.used(receipt.device_us, parts)
        else:
            used.count_answer(receipt.rows, receipt.tokens, receipt.device_us, parts)
            series.answered(stages(receipt.device_us), 5, 900, receipt.rows, receipt.tokens, cost_parts=parts)

    def end_second(self, second: int) -> None:
        at = START + second + 1.0
        for number, metrics in enumerate(self.metrics):
            frame = LiveFrame(f"gateway-{number}", 1, second, at, 1.0, metrics.take())
            self.collector.add(frame, at)
        self.collector.step(at + LAG_S)
        for closed in self.collector.take_slices():
            self.slices += closed.tallies.items()


def figures(tally: Tally) -> dict[str, int]:
    return {
        "requests": tally.ended,
        "rows": tally.rows,
        "tokens": tally.tokens,
        "device_us": tally.device_us,
        "cost_micro": tally.cost_micro,
    }


@given(receipts)
def test_receipts_the_ledger_metrics_windows_and_slices_have_the_same_sums(all_of: list[Receipt]) -> None:
    platform = Platform()
    for second in range(70):
        for receipt in all_of:
            if receipt.second == second:
                platform.settle(receipt)
        platform.end_second(second)
    (window,) = platform.collector.windows.read(120, START + 70, ())
    for second in range(70, 70 + QUIET_S):
        platform.end_second(second)
    for usage in platform.usage:
        usage.flush()

    good = [one for one in all_of if not one.is_failed]
    by_receipts = {
        "requests": len(all_of),
        "rows": sum(one.rows for one in good),
        "tokens": sum(one.tokens for one in good),
        "device_us": sum(one.device_us for one in all_of),
        # Each gateway rounds its own sum down, to a millionth of the currency.
        "cost_micro": sum(
            sum(one.device_us * PRICE for one in all_of if one.gateway == gateway) // 3_600_000_000
            for gateway in (0, 1)
        ),
    }
    rows = platform.outbox.rows
    by_ledger = {name: sum(getattr(row, name) for row in rows) for name in by_receipts}
    counted = [counts for metrics in platform.metrics for _, counts in metrics.totals()]
    by_metrics = {name: sum(getattr(one, name) for one in counted) for name in list(by_receipts)[1:]}
    stored = Tally()
    for raw in merged(platform.slices).values():
        stored.add(decode_tally(raw))
    assert by_ledger == by_receipts == figures(window.tally) == figures(stored)
    assert by_metrics == {name: by_receipts[name] for name in by_metrics}
