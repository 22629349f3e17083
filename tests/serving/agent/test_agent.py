"""The agent with real subprocesses (a worker that only speaks the control channel) and a seam in memory."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from serving.agent.app import Agent, cores_from
from serving.agent.epochs import Epochs
from serving.agent.launchers.local import WORKER_COMMAND, LocalLauncher
from serving.agent.measuring import Bounds
from serving.agent.validations import Validations
from serving.contract import (
    DeploymentEntry,
    EventReport,
    HostReport,
    ReplicaReport,
    ReplicaSpec,
    ValidationEntry,
    ValidationReport,
    VersionEntry,
)
from serving.runtime import Runtime
from serving.seam.memory import MemorySeam

FAKE_WORKER = (sys.executable, str(Path(__file__).with_name("fake_worker.py")))
PATIENCE_S = 60.0


def version(identifier: str = "mv_1", **options: str | int | float | bool) -> VersionEntry:
    return VersionEntry(
        id=identifier,
        model="m",
        number=1,
        engine="echo",
        artifact_sha256="",
        artifact_path="/nowhere",
        options=options,
    )


def deployment(*identifiers: str) -> DeploymentEntry:
    specs = [ReplicaSpec(id=name, version_id="mv_1", host="here", address="unix:/x") for name in identifiers]
    return DeploymentEntry(id="dep_1", model="m", replicas=tuple(specs))


class Stage:
    """One agent under test."""

    def __init__(self, tmp_path: Path) -> None:
        self.seam = MemorySeam()
        self.runtime = Runtime(
            state_dir=tmp_path,
            run_dir=tmp_path / "run",
            database_url=None,
            valkey_url=None,
            key_pepper=b"x" * 16,
            host="here",
            poll_interval_s=0.02,
        )
        self.stop = asyncio.Event()

    @asynccontextmanager
    async def agent(self, command: Sequence[str] = FAKE_WORKER) -> AsyncIterator[Agent]:
        self.stop.clear()
        environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        launcher = LocalLauncher(self.runtime.run_dir / "specs", command, environ)
        agent = Agent(self.runtime, self.seam, launcher)
        task = asyncio.create_task(agent.run(self.stop))
        try:
            yield agent
        finally:
            self.stop.set()
            await asyncio.wait_for(task, PATIENCE_S)

    def latest(self, replica_id: str = "rep_1") -> ReplicaReport | None:
        said = [body for body in self.seam.received() if isinstance(body, ReplicaReport)]
        return next((body for body in reversed(said) if body.replica_id == replica_id), None)

    async def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"not within {PATIENCE_S} s; last report {self.latest()}"
            await asyncio.sleep(0.01)

    async def until_state(self, state: str, replica_id: str = "rep_1") -> ReplicaReport:
        await self.until(lambda: (last := self.latest(replica_id)) and last.state == state)
        report = self.latest(replica_id)
        assert report is not None
        return report


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


async def test_a_deployed_replica_becomes_ready_and_is_reported_with_its_facts(stage: Stage):
    async with stage.agent():
        stage.seam.put("mv_1", version())
        stage.seam.put("dep_1", deployment("rep_1"))
        report = await stage.until_state("ready")
        assert (report.memory_bytes, report.load_s, report.host) == (1234, 0.5, "here")
        assert report.pid and psutil.pid_exists(report.pid)


async def test_what_happens_in_a_worker_is_reported_and_its_state_stays(stage: Stage):
    async with stage.agent():
        stage.seam.put("mv_1", version(out_of_memory=True))
        stage.seam.put("dep_1", deployment("rep_1"))
        await stage.until(lambda: [each for each in stage.seam.received() if isinstance(each, EventReport)])
        assert (await stage.until_state("ready")).reason == ""
    [event] = [each for each in stage.seam.received() if isinstance(each, EventReport)]
    assert (event.replica_id, event.host, event.event) == ("rep_1", "here", "batch.out_of_memory")
    assert event.numbers == {"cap_tokens": 200}


async def test_the_host_reports_its_devices(stage: Stage):
    async with stage.agent():
        await stage.until(lambda: any(isinstance(body, HostReport) for body in stage.seam.received()))
    host = next(body for body in stage.seam.received() if isinstance(body, HostReport))
    assert host.devices[0].kind == "cpu"
    assert host.devices[0].memory_bytes > 0


async def test_a_killed_worker_is_back_by_itself_under_a_greater_epoch(stage: Stage):
    async with stage.agent():
        stage.seam.put("mv_1", version())
        stage.seam.put("dep_1", deployment("rep_1"))
        before = await stage.until_state("ready")
        assert before.pid
        os.kill(before.pid, signal.SIGKILL)
        await stage.until(
            lambda: (last := stage.latest()) and last.epoch > before.epoch and last.state == "ready"
        )
        after = stage.latest()
        assert after and after.restarts == 1


async def test_an_unwanted_replica_drains_and_stops(stage: Stage):
    async with stage.agent():
        stage.seam.put("mv_1", version())
        stage.seam.put("dep_1", deployment("rep_1", "rep_2"))
        await stage.until_state("ready", "rep_2")
        stage.seam.put("dep_1", deployment("rep_1"))
        report = await stage.until_state("stopped", "rep_2")
        assert report.reason == "drained"
        assert (await stage.until_state("ready")).restarts == 0


async def test_a_crash_loop_is_reported_failed_with_the_last_line_of_the_log(stage: Stage):
    async with stage.agent():
        stage.seam.put("mv_1", version(crash=True))
        stage.seam.put("dep_1", deployment("rep_1"))
        report = await stage.until_state("failed")
        assert "code 3: Traceback: the artifact has no weights" in report.reason


async def test_a_graceful_stop_drains_the_workers_and_leaves_none(stage: Stage):
    async with stage.agent():
        stage.seam.put("mv_1", version())
        stage.seam.put("dep_1", deployment("rep_1"))
        ready = await stage.until_state("ready")
    assert ready.pid and not psutil.pid_exists(ready.pid)
    stopped = stage.latest()
    assert stopped and stopped.state == "stopped"


async def test_an_agent_that_starts_without_its_seam_runs_what_it_knew(stage: Stage):
    async with stage.agent():
        stage.seam.put("mv_1", version())
        stage.seam.put("dep_1", deployment("rep_1"))
        before = await stage.until_state("ready")
    stage.seam.is_down = True
    async with stage.agent() as agent:
        await stage.until(
            lambda: agent.supervisor.replicas and agent.supervisor.replicas["rep_1"].state == "ready"
        )
        assert agent.supervisor.replicas["rep_1"].epoch > before.epoch


async def test_secrets_and_the_database_are_withheld_from_workers(tmp_path: Path):
    launcher = LocalLauncher(tmp_path, environ={"DATABASE_URL": "x", "TIDEGATE_KEY_PEPPER": "y", "PATH": "z"})
    assert launcher._environ.keys() == {"PATH", "GLIBC_TUNABLES"}


async def test_a_validation_is_reported_once(stage: Stage):
    async with stage.agent():
        stage.seam.put("mv_1", version())
        stage.seam.put("mv_1", ValidationEntry(version_id="mv_1", host="here"))
        reports = await _validation_reports(stage)
        assert [report.ok for report in reports] == [True]


async def test_a_validation_that_crashes_says_why(stage: Stage):
    async with stage.agent():
        stage.seam.put("mv_1", version(crash=True))
        stage.seam.put("mv_1", ValidationEntry(version_id="mv_1", host="here", attempt=2))
        [report] = await _validation_reports(stage)
        assert (report.ok, report.attempt) == (False, 2)
        assert "unsupported architecture" in report.reason


async def test_validations_of_other_hosts_are_left_alone(stage: Stage):
    async with stage.agent():
        stage.seam.put("mv_1", version())
        stage.seam.put("mv_1", ValidationEntry(version_id="mv_1", host="elsewhere"))
        stage.seam.put("mv_2", version("mv_2"))
        stage.seam.put("mv_2", ValidationEntry(version_id="mv_2", host="here"))
        [report] = await _validation_reports(stage)
        assert report.version_id == "mv_2"


@pytest.mark.parametrize(
    ("options", "bounds", "reason"),
    [
        ({"hang": True}, Bounds(0.3, 1 << 40), "did not finish within"),
        ({"hog_mib": 256}, Bounds(30.0, 128 << 20), "more than 128 MiB"),
    ],
)
async def test_a_validation_beyond_its_bounds_is_ended(
    tmp_path: Path, options: dict, bounds: Bounds, reason: str
):
    reports: list[ValidationReport] = []
    validations = Validations(LocalLauncher(tmp_path, FAKE_WORKER), tmp_path, bounds, reports.append)
    validations.want({"mv_1": ValidationEntry(version_id="mv_1", host="here")}, {"mv_1": version(**options)})
    task = asyncio.create_task(validations.run_forever())
    deadline = time.monotonic() + PATIENCE_S
    while not reports:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
    task.cancel()
    assert reports[0].ok is False
    assert reason in reports[0].reason


def test_epochs_never_repeat_across_restarts(tmp_path: Path):
    first = Epochs(tmp_path / "epoch")
    numbers = [first.next(), first.next()]
    numbers.append(Epochs(tmp_path / "epoch").next())
    assert numbers == sorted(set(numbers))


def test_epochs_grow_when_the_clock_was_set_back(tmp_path: Path):
    (tmp_path / "epoch").write_text("9000000000000000")
    assert Epochs(tmp_path / "epoch").next() == 9000000000000001


def test_epochs_grow_over_a_lost_state_directory(tmp_path: Path):
    last = Epochs(tmp_path / "one").next()
    time.sleep(0.002)  # real starts are seconds apart
    assert Epochs(tmp_path / "other").next() > last


def test_a_damaged_epoch_file_is_refused(tmp_path: Path):
    (tmp_path / "epoch").write_text("??")
    with pytest.raises(ValueError, match="last epoch"):
        Epochs(tmp_path / "epoch")


def test_worker_cores_come_from_the_environment():
    assert cores_from({"TIDEGATE_CPU_WORKER": "1,3"}) == (1, 3)
    assert cores_from({}) == ()
    with pytest.raises(ValueError, match="TIDEGATE_CPU_WORKER"):
        cores_from({"TIDEGATE_CPU_WORKER": "one"})


async def _validation_reports(stage: Stage) -> list[ValidationReport]:
    def found() -> list[ValidationReport]:
        return [body for body in stage.seam.received() if isinstance(body, ValidationReport)]

    await stage.until(found)
    return found()


async def test_the_real_worker_becomes_ready_and_drains(stage: Stage, tmp_path: Path):
    address = f"unix:{tmp_path}/r.sock"
    replica = ReplicaSpec(id="rep_1", version_id="mv_1", host="here", address=address)
    async with stage.agent(WORKER_COMMAND):
        stage.seam.put("mv_1", version())
        stage.seam.put("dep_1", DeploymentEntry(id="dep_1", model="m", replicas=(replica,)))
        ready = await stage.until_state("ready")
        assert ready.load_s is not None
    stopped = stage.latest()
    assert stopped and (stopped.state, stopped.reason) == ("stopped", "drained")


async def test_the_real_worker_validates(stage: Stage):
    async with stage.agent(WORKER_COMMAND):
        stage.seam.put("mv_1", version())
        stage.seam.put("mv_1", ValidationEntry(version_id="mv_1", host="here"))
        [report] = await _validation_reports(stage)
        assert report.ok, report.reason
        assert report.cost is not None
