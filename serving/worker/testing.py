"""Public test doubles: a worker inside a test's own event loop, with the real intake, loop and scheduler."""

from __future__ import annotations

import asyncio
import threading
from typing import Self

from serving.scheduling.cost import CostModel
from serving.scheduling.scheduler import Scheduler
from serving.wire import PROTOCOL_VERSION, Hello
from serving.worker.engines.contract import Engine
from serving.worker.engines.echo import EchoEngine
from serving.worker.intake import Intake
from serving.worker.loop import EngineLoop, Settled


class EchoWorker:
    """`async with EchoWorker("unix:/…") as worker:` serves an engine (echo by default) until the end.

    `kill()` is what kill -9 looks like from outside; `drain()` is a graceful stop.
    """

    def __init__(
        self,
        address: str,
        engine: Engine | None = None,
        *,
        replica_id: str = "rep_echo",
        version_id: str = "mv_echo",
        epoch: int = 1,
        is_ready: bool = True,
    ) -> None:
        self.engine = engine or EchoEngine()
        self._address = address
        self._identity = (replica_id, version_id, epoch)
        self._starts_ready = is_ready
        self.intake = Intake(self.engine, self._hello)
        self._thread: threading.Thread | None = None
        self.loop: EngineLoop | None = None

    async def __aenter__(self) -> Self:
        self._event_loop = asyncio.get_running_loop()
        await self.intake.listen(self._address)
        if self._starts_ready:
            self.become_ready()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.drain()

    def become_ready(self) -> None:
        self.engine.load()
        scheduler = Scheduler(self.engine.max_batch_rows, CostModel(), can_yield=self.engine.can_yield)
        self.loop = EngineLoop(self.engine, scheduler, self._deliver)
        self._thread = threading.Thread(target=self.loop.run, daemon=True)
        self._thread.start()
        self.intake.accept(self.loop)

    async def drain(self) -> None:
        """Refuse new requests, answer those accepted, then close every link."""
        self.intake.drain()
        if self.loop is not None and self._thread is not None:
            self.loop.drain()
            await asyncio.to_thread(self._thread.join, 10.0)
        await asyncio.sleep(0)  # the last answers are queued on this loop
        await self.intake.close()

    async def kill(self) -> None:
        """Drop every link without an answer and stop listening."""
        await self.intake.close(timeout_s=0.0)

    def _deliver(self, settled: Settled) -> None:
        self._event_loop.call_soon_threadsafe(self.intake.deliver, settled)

    def _hello(self) -> Hello:
        replica_id, version_id, epoch = self._identity
        return Hello(
            protocol=PROTOCOL_VERSION,
            replica_id=replica_id,
            version_id=version_id,
            epoch=epoch,
            is_accepting=self.intake.is_accepting,
            max_batch_rows=self.engine.max_batch_rows,
        )
