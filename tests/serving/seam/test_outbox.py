"""Reports arrive exactly once, whatever fails on the way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.contract import HostReport, ReplicaReport, Report, UsageReport, UsageRow, ValidationReport
from serving.seam import outbox as outbox_module
from serving.seam.memory import MemorySeam
from serving.seam.outbox import ReportOutbox


def usage(minute: int = 0, tenant: str = "tnt_a", requests: int = 1, device_us: int = 10) -> UsageReport:
    row = UsageRow(
        minute=minute,
        tenant_id=tenant,
        key_id="key_a",
        model="m",
        version_id="mv_a",
        sla_class="batch",
        requests=requests,
        device_us=device_us,
    )
    return UsageReport(rows=(row,))


def replica(state: str, replica_id: str = "rep_a", epoch: int = 1) -> ReplicaReport:
    return ReplicaReport(replica_id=replica_id, version_id="mv_a", host="h", epoch=epoch, state=state)  # type: ignore[arg-type]


def total(seam: MemorySeam) -> int:
    return sum(row.requests for body in seam.received() if isinstance(body, UsageReport) for row in body.rows)


@pytest.fixture
def seam() -> MemorySeam:
    return MemorySeam()


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    return tmp_path / "spool" / "reports.jsonl"


async def test_a_report_is_delivered(seam: MemorySeam, spool: Path) -> None:
    outbox = ReportOutbox(seam, "gateway-0", spool)
    await outbox.start()
    outbox.put(usage())
    await outbox.stop()
    assert seam.received() == [usage()]
    assert not spool.exists()


async def test_usage_adds_up_while_the_seam_is_away(seam: MemorySeam, spool: Path) -> None:
    seam.is_down = True
    outbox = ReportOutbox(seam, "gateway-0", spool)
    for _ in range(100):
        outbox.put(usage())
    assert not await outbox.flush()
    outbox.put(usage())
    seam.is_down = False
    assert await outbox.flush()
    assert total(seam) == 101
    assert len(seam.reports) == 2, "the attempted report and the sum of what came after it"


async def test_only_the_latest_state_of_a_replica_waits(seam: MemorySeam, spool: Path) -> None:
    outbox = ReportOutbox(seam, "agent", spool)
    for state in ("starting", "loading", "ready"):
        outbox.put(replica(state))
    outbox.put(replica("failed", "rep_b"))
    outbox.put(HostReport(host="h", epoch=1, devices=(), replica_dir="/r"))
    outbox.put(HostReport(host="h", epoch=2, devices=(), replica_dir="/r"))
    assert await outbox.flush()
    assert seam.received() == [
        replica("ready"),
        replica("failed", "rep_b"),
        HostReport(host="h", epoch=2, devices=(), replica_dir="/r"),
    ]


async def test_every_validation_report_waits(seam: MemorySeam, spool: Path) -> None:
    outbox = ReportOutbox(seam, "agent", spool)
    bodies = [ValidationReport(version_id="mv_a", attempt=attempt, ok=False) for attempt in (1, 2)]
    for body in bodies:
        outbox.put(body)
    assert await outbox.flush()
    assert seam.received() == bodies


async def test_an_ambiguous_attempt_is_repeated_under_its_own_numbers(seam: MemorySeam, spool: Path) -> None:
    class LosesAnswers(MemorySeam):
        async def send_reports(self, reports):  # type: ignore[no-untyped-def]
            await super().send_reports(reports)
            if len(attempts) < 2:
                attempts.append(1)
                seam.is_down = True
                await super().send_reports(reports)

    attempts: list[int] = []
    seam = LosesAnswers()
    outbox = ReportOutbox(seam, "gateway-0", spool)
    outbox.put(usage())
    for _ in range(3):
        await outbox.flush()
        outbox.put(usage())
        seam.is_down = False
    assert await outbox.flush()
    assert total(seam) == 4


async def test_a_restart_delivers_what_the_last_run_could_not(seam: MemorySeam, spool: Path) -> None:
    seam.is_down = True
    first = ReportOutbox(seam, "gateway-0", spool)
    await first.start()
    first.put(usage(requests=7))
    await first.stop(timeout_s=0.1)
    assert spool.stat().st_mode & 0o777 == 0o600
    seam.is_down = False
    second = ReportOutbox(seam, "gateway-0", spool)
    await second.start()
    second.put(usage(requests=1))
    await second.stop()
    assert total(seam) == 8
    assert not spool.exists()


async def test_a_torn_spool_loses_only_the_torn_line(seam: MemorySeam, spool: Path) -> None:
    seam.is_down = True
    first = ReportOutbox(seam, "gateway-0", spool)
    first.put(usage(requests=7))
    first.put(replica("ready"))
    await first.stop(timeout_s=0.1)
    spool.write_bytes(spool.read_bytes() + b'{"process": "gateway-0", "seq')
    seam.is_down = False
    second = ReportOutbox(seam, "gateway-0", spool)
    await second.start()
    await second.stop()
    assert total(seam) == 7
    assert replica("ready") in seam.received()


async def test_usage_beyond_the_bound_is_folded_into_hours_and_none_is_lost(
    seam: MemorySeam, spool: Path
) -> None:
    outbox = ReportOutbox(seam, "gateway-0", spool, max_usage_rows=100)
    for minute in range(1000):
        outbox.put(usage(minute=minute * 60))
    assert outbox.pending <= 200
    assert await outbox.flush()
    assert total(seam) == 1000


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(
        st.sampled_from(["put", "flush", "down", "up", "save", "crash", "lose_answer"]),
        min_size=1,
        max_size=40,
    )
)
async def test_usage_is_counted_once_over_any_sequence_of_failures_that_spools(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str]
) -> None:
    """A crash may lose what was never spooled, never what was; nothing is ever counted twice."""

    class Flaky(MemorySeam):
        loses_answer = False

        async def send_reports(self, reports):  # type: ignore[no-untyped-def]
            await super().send_reports(reports)
            if self.loses_answer:
                self.loses_answer = False
                self.is_down = True
                self._check()

    spool = tmp_path_factory.mktemp("spool") / "reports.jsonl"
    seam = Flaky()
    outbox = ReportOutbox(seam, "gateway-0", spool)
    put = 0
    for step in steps:
        if step == "put":
            outbox.put(usage(minute=60 * (put % 3)))
            put += 1
        elif step == "flush":
            await outbox.flush()
        elif step in ("down", "up"):
            seam.is_down = step == "down"
        elif step == "lose_answer":
            seam.loses_answer = True
        elif step == "save" and outbox.pending:
            await outbox._save()
        elif step == "crash":
            if outbox.pending:
                await outbox._save()
            outbox = ReportOutbox(seam, "gateway-0", spool)
            outbox.recover()
    seam.is_down = seam.loses_answer = False
    assert await outbox.flush()
    assert total(seam) == put


class SilentSeam(MemorySeam):
    """A database that accepts and says nothing, as one that was stopped does."""

    async def send_reports(self, reports: Sequence[Report]) -> None:
        await asyncio.Event().wait()


async def test_a_crash_while_the_database_says_nothing_loses_nothing_that_is_a_second_old(
    seam: MemorySeam, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox_module, "PATIENCE_S", 0.01)
    outbox = ReportOutbox(SilentSeam(), "gateway-0", spool)
    await outbox.start()
    outbox.put(usage(requests=3))
    await until_spooled(spool, 3)
    outbox.put(usage(requests=4))
    outbox._spool_due = 0.0
    await until_spooled(spool, 7)
    assert outbox._task is not None
    outbox._task.cancel()  # the crash: nothing is tidied up

    after = ReportOutbox(seam, "gateway-0", spool)
    await after.start()
    await after.stop()
    assert total(seam) == 7
    assert not spool.exists()


async def until_spooled(spool: Path, requests: int) -> None:
    async with asyncio.timeout(20):
        while sum(row["requests"] for row in spooled_rows(spool)) != requests:
            await asyncio.sleep(0.005)


def spooled_rows(spool: Path) -> list[dict[str, int]]:
    lines = spool.read_bytes().splitlines() if spool.exists() else []
    return [row for line in lines for row in json.loads(line)["body"]["rows"]]


async def test_numbered_reports_keep_their_numbers_and_count_once(seam: MemorySeam, spool: Path) -> None:
    numbered = [Report("gateway-0:u", 1024, usage()), Report("gateway-0:u", 1025, usage())]
    seam.is_down = True
    outbox = ReportOutbox(seam, "gateway-0", spool)
    await outbox.start(inherited=numbered)
    assert spool.exists(), "whoever kept them may forget them now"
    outbox.put_numbered(numbered)
    assert outbox.holds("gateway-0:u") and not outbox.holds("gateway-0")
    seam.is_down = False
    assert await outbox.flush()
    assert not outbox.holds("gateway-0:u")
    assert total(seam) == 2
    await outbox.stop()
