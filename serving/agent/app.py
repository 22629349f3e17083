"""The agent: follows the configuration, does what the supervisor decides, reports what it sees."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import structlog

from serving.agent.configuration import Configuration
from serving.agent.devices import devices, features, memory_bytes
from serving.agent.epochs import Epochs
from serving.agent.launchers import Handle, Job, Launcher
from serving.agent.measuring import Bounds
from serving.agent.states import Action, Drain, Kill, Start
from serving.agent.supervisor import DRAIN_TIMEOUT_S, Supervisor
from serving.agent.tunings import CANDIDATE_TIMEOUT_S, Tunings
from serving.agent.validations import TIMEOUT_S, Validations
from serving.contract import ConfigChange, EventReport, HostReport, ReplicaState
from serving.ending import end_tasks
from serving.rotation import rotate_when_large
from serving.runtime import Runtime
from serving.seam import Seam
from serving.seam.follower import ConfigFollower
from serving.seam.outbox import ReportOutbox

log = structlog.get_logger(__name__)

HEARTBEAT_S = 5.0
LONGEST_NAP_S = 1.0
VALIDATION_MEMORY_SHARE = 0.8
MAX_EVENT_CHARS = 64
MAX_EVENT_NUMBERS = 16


class StateLine(msgspec.Struct):
    """What a worker says of itself on its control channel."""

    state: ReplicaState
    reason: str = ""
    memory_bytes: int | None = None
    load_s: float | None = None
    is_beat: bool = False
    event: str = ""
    numbers: dict[str, int | float] = {}


_decode_line = msgspec.json.Decoder(StateLine).decode


class Agent:
    """`run(stop)` until `stop` is set: then every worker drains, the last reports go out, and it returns."""

    def __init__(
        self,
        runtime: Runtime,
        seam: Seam,
        launcher: Launcher,
        cores: Sequence[int] = (),
    ) -> None:
        own_dir = runtime.state_dir / "agent"
        self._host = runtime.host
        self._log_dir = runtime.state_dir / "log"
        self._replica_dir = runtime.run_dir / "r"
        self._launcher = launcher
        self._cores = cores
        self._batch_min_share = runtime.batch_min_share
        epochs = Epochs(own_dir / "epoch")
        self._epoch = epochs.next()
        self.supervisor = Supervisor(self._host, epochs.next)
        self._configuration = Configuration(self._host)
        self._handles: dict[tuple[str, int], Handle] = {}
        self._logs: set[Path] = set()
        self._wake = asyncio.Event()
        self._outbox = ReportOutbox(seam, f"agent:{self._host}", own_dir / "reports")
        self._follower = ConfigFollower(
            seam,
            Configuration.KINDS,
            own_dir / "last-good.json",
            self._on_changes,
            poll_interval_s=runtime.poll_interval_s,
        )
        core, turn = cores[0] if cores else None, asyncio.Lock()
        memory = int(memory_bytes() * VALIDATION_MEMORY_SHARE)
        self._validations = Validations(
            launcher, self._log_dir, Bounds(TIMEOUT_S, memory), self._outbox.put, core, turn
        )
        self._tunings = Tunings(
            launcher,
            self._log_dir,
            own_dir / "tuning",
            Bounds(CANDIDATE_TIMEOUT_S, memory),
            self._outbox.put,
            core,
            turn,
        )

    async def run(self, stop: asyncio.Event) -> None:
        self._replica_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        await self._outbox.start()
        await self._follower.start()
        forever = (self._validations.run_forever, self._tunings.run_forever, self._heartbeat)
        tasks = [asyncio.create_task(run()) for run in forever]
        stopping = asyncio.create_task(self._wake_at(stop))
        try:
            while not stop.is_set():
                await self._step()
                await self._nap()
            await self._drain_all(tasks)
        finally:
            stopping.cancel()
            self._kill_all()
            await self._follower.stop()
            await self._outbox.stop()

    # -------------------------------------------------------------------- loop

    async def _step(self) -> None:
        now = time.monotonic()
        for action in self.supervisor.step(now):
            await self._do(action)
        for report in self.supervisor.reports(now, time.time()):
            self._outbox.put(report)

    async def _nap(self) -> None:
        now = time.monotonic()
        due = self.supervisor.next_due(now)
        nap_s = LONGEST_NAP_S if due is None else min(LONGEST_NAP_S, max(0.01, due - now))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), nap_s)
        self._wake.clear()

    async def _wake_at(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._wake.set()

    async def _drain_all(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        """Whatever the supervisor bounds is bounded here; the margin is for a kill to be noticed."""
        await end_tasks(tasks)
        deadline = time.monotonic() + DRAIN_TIMEOUT_S + 3.0
        self.supervisor.want((), {}, time.monotonic())
        await self._step()
        while not self.supervisor.is_idle and time.monotonic() < deadline:
            await self._nap()
            await self._step()
        await self._step()

    def _kill_all(self) -> None:
        for handle in self._handles.values():
            handle.kill()

    # -------------------------------------------------------------------- doing

    async def _do(self, action: Action) -> None:
        match action:
            case Start():
                await self._start(action)
            case Drain(replica_id, epoch):
                log.info("replica.draining", replica=replica_id, epoch=epoch)
                if handle := self._handles.get((replica_id, epoch)):
                    handle.send(b'{"do":"drain"}')
            case Kill(replica_id, epoch):
                log.warning("replica.killed", replica=replica_id, epoch=epoch)
                if handle := self._handles.get((replica_id, epoch)):
                    handle.kill()

    async def _start(self, start: Start) -> None:
        key = (start.spec.id, start.epoch)
        log.info("replica.starting", replica=start.spec.id, version=start.version.id, epoch=start.epoch)
        try:
            handle = await self._launcher.launch(
                self._job(start), lambda line: self._on_line(key, line), lambda how: self._on_exit(key, how)
            )
        except OSError as error:
            self._on_exit(key, f"the worker could not be started: {error}")
            return
        self._handles[key] = handle
        self.supervisor.started(*key, handle.pid)

    def _job(self, start: Start) -> Job:
        spec = {
            "replica_id": start.spec.id,
            "epoch": start.epoch,
            "address": start.spec.address,
            "device": start.spec.device,
            "threads": start.spec.threads,
            "cpu_core": self._core(start),
            "batch_min_share": self._batch_min_share,
            "version": start.version,
        }
        log_path = self._log_dir / f"worker-{start.spec.id}.log"
        self._logs.add(log_path)
        return Job(start.spec.id, msgspec.json.encode(spec), log_path)

    def _core(self, start: Start) -> int | None:
        """The specification's core, else the configured ones by turns, the same for each start of a replica."""
        if start.spec.cpu_core is not None or not self._cores:
            return start.spec.cpu_core
        position = sorted(self.supervisor.replicas).index(start.spec.id)
        return self._cores[position % len(self._cores)]

    # -------------------------------------------------------------------- events

    def _on_changes(self, changes: Sequence[ConfigChange]) -> None:
        self._configuration.apply(changes)
        versions = self._configuration.versions
        self.supervisor.want(self._configuration.replicas(), versions, time.monotonic())
        self._validations.want(self._configuration.validations(), versions)
        self._tunings.want(self._configuration.tunings(), versions)
        self._wake.set()

    def _on_line(self, key: tuple[str, int], line: bytes) -> None:
        try:
            said = _decode_line(line)
        except msgspec.DecodeError as error:
            log.warning("replica.unreadable_line", replica=key[0], error=str(error))
            return
        if said.is_beat:
            self.supervisor.heard(*key, time.monotonic())
            return
        if said.event:
            self._report_event(key, said)
            return
        log.info("replica.state", replica=key[0], epoch=key[1], state=said.state, reason=said.reason)
        self.supervisor.told(
            *key,
            said.state,
            time.monotonic(),
            reason=said.reason,
            memory_bytes=said.memory_bytes,
            load_s=said.load_s,
        )
        self._wake.set()

    def _report_event(self, key: tuple[str, int], said: StateLine) -> None:
        replica_id, epoch = key
        log.warning("replica.event", replica=replica_id, epoch=epoch, what=said.event, **said.numbers)
        self._outbox.put(
            EventReport(
                replica_id=replica_id,
                host=self._host,
                epoch=epoch,
                event=said.event[:MAX_EVENT_CHARS],
                numbers=dict(itertools.islice(said.numbers.items(), MAX_EVENT_NUMBERS)),
                at=time.time(),
            )
        )

    def _on_exit(self, key: tuple[str, int], how: str) -> None:
        log.info("replica.exited", replica=key[0], epoch=key[1], how=how)
        self._handles.pop(key, None)
        self.supervisor.exited(*key, how, time.monotonic())
        self._wake.set()

    async def _heartbeat(self) -> None:
        found, able = await asyncio.to_thread(lambda: (devices(), features()))
        while True:
            self._outbox.put(
                HostReport(
                    host=self._host,
                    epoch=self._epoch,
                    devices=found,
                    replica_dir=str(self._replica_dir),
                    at=time.time(),
                    features=able,
                )
            )
            for path in self._logs:
                rotate_when_large(path)
            await asyncio.sleep(HEARTBEAT_S)


def cores_from(environ: Mapping[str, str]) -> tuple[int, ...]:
    """`TIDEGATE_CPU_WORKER=1,2`: cores that workers without one of their own are pinned to, by turns."""
    text = environ.get("TIDEGATE_CPU_WORKER", "")
    try:
        return tuple(int(part) for part in text.split(",") if part)
    except ValueError:
        raise ValueError(f"TIDEGATE_CPU_WORKER must be core numbers, not {text!r}") from None
