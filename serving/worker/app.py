"""One worker process: states, threads, signals, and the order of shutdown.

    starting → loading → warming → ready → draining → (exit 0)
                  └─────────┴────────┴─────────────→ failed (exit 1, with a reason)

It listens from the first moment, so that gateways are connected when it becomes ready. Draining: take
nothing new, finish what is queued and running, let the answers leave, exit. Nothing here waits for the
database or for the agent.
"""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from contextlib import suppress

import structlog

from serving.contract import ReplicaState
from serving.errors import DataPlaneError
from serving.scheduling.cost import CostModel
from serving.scheduling.policy import Policy
from serving.scheduling.scheduler import Scheduler
from serving.telemetry.tracing import Tracing
from serving.wire import PROTOCOL_VERSION, Hello
from serving.worker import artifact, engines, memory, telemetry
from serving.worker.control import ControlChannel, StateLine
from serving.worker.engines.contract import DeviceLost, LoadFailed
from serving.worker.intake import Intake
from serving.worker.loop import EngineLoop, Notice, Settled
from serving.worker.spans import WorkerSpans
from serving.worker.spec import WorkerSpec

log = structlog.get_logger(__name__)

BEAT_S = 5.0
NOTICE_EVERY_S = 10.0


class Worker:
    """Lives on the event loop; the engine has a thread of its own, which loads, warms and runs it."""

    def __init__(
        self,
        spec: WorkerSpec,
        control: ControlChannel,
        valkey_url: str | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        self._spec = spec
        self._control = control
        self._valkey_url = valkey_url
        self._state: ReplicaState = "starting"
        self._loop = asyncio.get_running_loop()
        self._exit: asyncio.Future[int] = self._loop.create_future()
        self._tasks: list[asyncio.Task[None]] = []
        self._cost = CostModel(spec.version.cost)
        self._engine = engines.create(spec.version, spec.device, spec.threads)
        self._engine_loop: EngineLoop | None = None
        self._told_at: dict[str, float] = {}
        self.intake = Intake(self._engine, self._hello)
        if tracing is not None:
            self.intake.spans = WorkerSpans(tracing, spec.version, spec.replica_id)

    async def run(self) -> int:
        """Serve until told to stop; the process's exit status. Raises `OSError` for an unusable address."""
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self.drain)
        await self.intake.listen(self._spec.address)
        self._tasks.append(self._loop.create_task(self._control.follow(self.obey)))
        threading.Thread(target=self._engine_main, name="engine", daemon=True).start()
        status = await self._exit
        for task in self._tasks:
            task.cancel()
        await self.intake.close(timeout_s=5.0 if status == 0 else 0.0)
        return status

    async def _beat(self, engine_loop: EngineLoop) -> None:
        """Tell the agent that this process lives, and end it when its engine does not."""
        while True:
            self._control.send(StateLine(self._state, is_beat=True))
            await asyncio.sleep(BEAT_S)
            if engine_loop.is_stuck:
                self._engine_ended("the engine hangs: a batch made no progress for far longer than predicted")

    def obey(self, command: str) -> None:
        """A command of the agent, or `orphaned` when it is gone."""
        log.info("worker.told", command=command)
        if command == "drain":
            self.drain()
        else:
            self._end(0 if command == "stop" else 1)

    def drain(self) -> None:
        """Finish what was accepted, then exit; the second time, or before there is work, exit at once."""
        if self._engine_loop is None or self._state == "draining":
            self._end(0)
            return
        self.intake.drain()
        self._enter("draining")
        self._engine_loop.drain()

    def _end(self, status: int) -> None:
        if not self._exit.done():
            self._exit.set_result(status)

    # ------------------------------------------------------------ the engine's thread

    def _engine_main(self) -> None:
        reason = ""
        try:
            self._load()
            engine_loop = self._build_loop()
            self._call(self._ready, engine_loop)
            engine_loop.run()
        except (LoadFailed, DeviceLost, DataPlaneError) as error:
            reason = str(error)
        except Exception as error:  # top of the thread: whatever it was, the process says so and ends
            log.exception("engine.crashed")
            reason = f"{type(error).__name__}: {error}"
        self._call(self._engine_ended, reason)

    def _load(self) -> None:
        self._call(self._enter, "loading")
        artifact.verify(self._spec.version)
        self._engine.load()
        self._call(self._enter, "warming")
        self._engine.warm_up()
        memory.settle()

    def _build_loop(self) -> EngineLoop:
        scheduler = Scheduler(
            self._engine.max_batch_rows,
            self._cost,
            can_yield=self._engine.can_yield,
            policy=Policy(batch_min_share=self._spec.batch_min_share),
        )
        return EngineLoop(self._engine, scheduler, self._deliver, notify=self._notify)

    def _deliver(self, settled: Settled) -> None:
        self._call(self.intake.deliver, settled)

    def _notify(self, notice: Notice) -> None:
        self._call(self._tell, notice)

    def _call(self, function: object, *args: object) -> None:
        with suppress(RuntimeError):  # the event loop is closed: the process is about to end
            self._loop.call_soon_threadsafe(function, *args)  # type: ignore[arg-type]

    # ------------------------------------------------------------ states, on the event loop

    def _ready(self, engine_loop: EngineLoop) -> None:
        if self._exit.done():
            return
        self._engine_loop = engine_loop
        self._enter("ready")
        self.intake.accept(engine_loop)
        self._tasks.append(self._loop.create_task(self._beat(engine_loop)))
        if self._valkey_url:
            frames = telemetry.publish(self._valkey_url, self._spec, self._cost, engine_loop.take_counters)
            self._tasks.append(self._loop.create_task(frames))

    def _engine_ended(self, reason: str) -> None:
        if reason:
            self._enter("failed", reason)
        self._end(1 if reason else 0)

    def _enter(self, state: ReplicaState, reason: str = "") -> None:
        self._state = state
        line = StateLine(state, reason)
        if state == "ready":
            line.memory_bytes = memory.resident_bytes()
            line.load_s = round(memory.age_s(), 3)
        log.info("worker.state", state=state, reason=reason, replica=self._spec.replica_id)
        self._control.send(line)

    def _tell(self, notice: Notice) -> None:
        """Pass an event on, at most one of a kind each few seconds: what happens often is one event."""
        now = time.monotonic()
        if now - self._told_at.get(notice.event, float("-inf")) < NOTICE_EVERY_S:
            return
        self._told_at[notice.event] = now
        log.warning(notice.event, **notice.numbers)
        self._control.send(StateLine(self._state, event=notice.event, numbers=notice.numbers))

    def _hello(self) -> Hello:
        return Hello(
            protocol=PROTOCOL_VERSION,
            replica_id=self._spec.replica_id,
            version_id=self._spec.version.id,
            epoch=self._spec.epoch,
            is_accepting=self.intake.is_accepting,
            max_batch_rows=self._engine.max_batch_rows,
            cost=self._spec.version.cost,
        )
