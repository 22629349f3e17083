"""What a request is charged: at the price of its moment and device, whole or cancelled, the same in every sum."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from serving.contract import DeploymentEntry, PriceEntry, ReplicaSpec, UsageReport, UsageRow
from serving.gateway.usage import Usage, Used
from serving.gateway.usage_journal import SLOT_BYTES, JournalFile
from serving.prices import PARTS_PER_MICRO, Rates
from serving.worker.testing import EchoWorker
from tests.serving.gateway.engines import HeldEngine
from tests.serving.gateway.harness import Harness, gateway, until
from tests.serving.gateway.test_counting import Outbox


def rows(harness: Harness) -> list[UsageRow]:
    reports = (body for body in harness.seam.received() if isinstance(body, UsageReport))
    return [row for report in reports for row in report.rows]


async def until_charged(harness: Harness, per_thousand_requests: int) -> None:
    await until(lambda: rates(harness, time.time()).micro_per_thousand_requests == per_thousand_requests)


def rates(harness: Harness, now: float) -> Rates:
    snapshot = harness.gateway._snapshot
    own = snapshot.versions["mv_echo"].price_micro_per_device_hour
    return snapshot.prices.rates("rep_0", "echo", own, now)


async def test_a_price_reaches_a_running_gateway_and_the_answer_s_receipt(echo: Harness) -> None:
    echo.seam.put(
        "prc_a",
        PriceEntry(id="prc_a", micro_per_thousand_requests=5_000_000, micro_per_million_tokens=2_000_000),
    )
    await until_charged(echo, 5_000_000)
    response = await echo.infer()
    device_us = float(response.headers["x-tidegate-device-ms"]) * 1000
    # The version's own price is 1.00 an hour; a request costs 0.005, its one token 0.000002.
    assert abs(float(response.headers["x-tidegate-cost"]) - (0.005002 + device_us / 3.6e9)) < 2e-9


async def test_a_price_to_come_is_not_charged_before_its_time(echo: Harness) -> None:
    later = time.time() + 3600
    echo.seam.put("prc_b", PriceEntry(id="prc_b", effective_from=later, micro_per_thousand_requests=10**9))
    echo.seam.put("prc_a", PriceEntry(id="prc_a", micro_per_thousand_requests=1000))
    await until_charged(echo, 1000)
    assert float((await echo.infer()).headers["x-tidegate-cost"]) < 0.001
    assert rates(echo, later).micro_per_thousand_requests == 10**9


async def test_the_price_of_the_device_binds_that_answered() -> None:
    async with gateway() as harness:
        harness.publish_model(price_micro_per_device_hour=0)
        replica = ReplicaSpec(id="rep_0", version_id="mv_echo", host="test", address=harness.address())
        classes = {"rep_0": "nvidia-h200"}
        harness.seam.put(
            "dep_echo",
            DeploymentEntry(id="dep_echo", model="echo", replicas=(replica,), device_classes=classes),
        )
        for name, charge in (("cpu", 1000), ("nvidia-h200", 2000)):
            entry = PriceEntry(id=name, device_class=name, micro_per_thousand_requests=charge * 1000)
            harness.seam.put(name, entry)
        async with EchoWorker(harness.address(), replica_id="rep_0"):
            await harness.until_ready()
            await until_charged(harness, 2_000_000)
            assert float((await harness.infer()).headers["x-tidegate-cost"]) == 0.002


async def test_the_bill_the_receipts_and_the_metrics_say_the_same(echo: Harness) -> None:
    echo.seam.put(
        "prc_a",
        PriceEntry(id="prc_a", micro_per_thousand_requests=1_234_567, micro_per_million_tokens=7_654_321),
    )
    await until_charged(echo, 1_234_567)
    answers = [await echo.infer() for _ in range(7)]
    metrics = (await echo.client.get("/metrics")).text
    await echo.stop()
    billed = rows(echo)
    await echo.start()
    device_us = sum(round(float(answer.headers["x-tidegate-device-ms"]) * 1000) for answer in answers)
    cost = sum(float(answer.headers["x-tidegate-cost"]) for answer in answers)
    assert sum(row.device_us for row in billed) == device_us
    assert abs(sum(row.cost_micro for row in billed) - cost * 1e6) <= 1 + 1e-3 * len(answers)
    families = {family.name: family for family in text_string_to_metric_families(metrics)}
    counted = {
        name: sum(sample.value for sample in families[name].samples if sample.name == f"{name}_total")
        for name in ("tidegate_device_seconds", "tidegate_cost_units", "tidegate_tokens")
    }
    assert round(counted["tidegate_device_seconds"] * 1e6) == device_us
    assert round(counted["tidegate_cost_units"] * 1e6) == sum(row.cost_micro for row in billed)
    assert counted["tidegate_tokens"] == sum(row.tokens for row in billed)


async def test_what_a_client_left_behind_is_settled_as_cancelled() -> None:
    async with gateway() as harness:
        harness.publish_model(price_micro_per_device_hour=3_600_000_000)
        harness.publish_replicas(harness.address())
        engine = HeldEngine()
        async with EchoWorker(harness.address(), engine, replica_id="rep_0"):
            await harness.until_ready()
            asked = asyncio.create_task(harness.infer())
            await until(engine.started.is_set)
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)
            metrics = harness.gateway._metrics
            await until(lambda: harness.gateway.inference.dispatcher.in_flight == 0)
            engine.release.set()
            await until(lambda: any(counts.device_us for _, counts in metrics.totals()))
        harness.gateway._usage.flush()
        await until(lambda: rows(harness))
        (row,) = rows(harness)
        assert (row.requests, row.cancelled, row.failed, row.rows) == (1, 1, 0, 0)
        assert row.device_us == row.cancelled_us > 0
        # At 3,600 units an hour a microsecond costs a micro-unit.
        assert row.cost_micro == row.device_us


def test_usage_that_a_former_release_left_is_charged_at_the_price_it_kept(tmp_path: Path) -> None:
    path = tmp_path / "usage-0.journal"
    path.write_bytes(
        _former(["60", "tnt_a", "key_a", "m", "mv_a", "standard"], [2, 0, 1, 3, 7, 5_000, 3_600_000])
    )
    outbox = Outbox()
    outbox.put_numbered(Usage(outbox, tmp_path).recover())
    (row,) = outbox.rows
    assert (row.requests, row.cancelled, row.rows, row.tokens, row.device_us) == (2, 1, 3, 7, 5_000)
    assert (row.cost_micro, row.cancelled_us) == (5, 0)
    assert JournalFile(path).found() is not None, "reading it does not empty it"


def _former(identity: list[str], counts: list[int]) -> bytes:
    """A file of the release before, with one account."""
    import json
    import struct

    name = json.dumps(identity).encode()
    head = struct.pack("<8sqqH", b"tgusage1", 1, 1, 1) + b"p"
    slot = struct.pack("<7q", *counts) + struct.pack("<H", len(name)) + name
    return head.ljust(SLOT_BYTES, b"\0") + slot.ljust(SLOT_BYTES, b"\0")


def test_sums_of_money_outgrow_no_cell(tmp_path: Path) -> None:
    file = JournalFile(tmp_path / "usage-0.journal")
    file.begin("p", 1)
    cells = file.add(["60", "tnt_a", "key_a", "m", "mv_a", "standard"])
    assert cells is not None
    used, huge = Used(cells), Rates(10**15).device_parts(10**9)
    for _ in range(3):
        used.add_device_time(10**9, huge)
    *_, cost_micro, parts = used.counts
    assert cost_micro * PARTS_PER_MICRO + parts == 3 * huge
