"""Validation runs, one at a time: each a worker process that measures a version and ends by itself."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import structlog

from serving.agent import measuring
from serving.agent.launchers import Job, Launcher
from serving.agent.measuring import Bounds, MeasuringRun
from serving.contract import ValidationEntry, ValidationReport, VersionEntry, decode_report

log = structlog.get_logger(__name__)

TIMEOUT_S = 600.0


class Validations:
    """`want` with every change of the configuration; reports come through `report`, each attempt once.

    `turn` is held while a process measures: whoever measures on this host waits for it.
    """

    def __init__(
        self,
        launcher: Launcher,
        log_dir: Path,
        bounds: Bounds,
        report: Callable[[ValidationReport], None],
        cpu_core: int | None = None,
        turn: asyncio.Lock | None = None,
    ) -> None:
        self._launcher = launcher
        self._log_dir = log_dir
        self._bounds = bounds
        self._report = report
        self._cpu_core = cpu_core
        self._turn = turn or asyncio.Lock()
        self._wanted: dict[tuple[str, int], VersionEntry] = {}
        self._done: set[tuple[str, int]] = set()
        self._changed = asyncio.Event()

    def want(self, entries: Mapping[str, ValidationEntry], versions: Mapping[str, VersionEntry]) -> None:
        """Entries of this host; one whose version is not known yet waits."""
        self._wanted = {
            (entry.version_id, entry.attempt): versions[entry.version_id]
            for entry in entries.values()
            if entry.version_id in versions
        }
        self._done = {key for key in self._done if key[0] in entries}
        self._changed.set()

    async def run_forever(self) -> None:
        while True:
            key = next((key for key in self._wanted if key not in self._done), None)
            if key is None:
                self._changed.clear()
                await self._changed.wait()
                continue
            async with self._turn:
                await self._run(key)

    async def _run(self, key: tuple[str, int]) -> None:
        version = self._wanted.get(key)
        if version is None:  # withdrawn while it waited for its turn
            return
        log.info("validation.started", version=version.id, attempt=key[1])
        report = await self._measured(key, version)
        self._done.add(key)
        if key in self._wanted:
            log.info("validation.finished", version=version.id, ok=report.ok, reason=report.reason)
            self._report(report)

    async def _measured(self, key: tuple[str, int], version: VersionEntry) -> ValidationReport:
        """The worker's report, or one that says why there is none."""
        said: list[ValidationReport] = []

        def on_line(line: bytes) -> None:
            with contextlib.suppress(msgspec.DecodeError):  # state lines are for replicas
                body = decode_report(line)
                if isinstance(body, ValidationReport):
                    said.append(msgspec.structs.replace(body, attempt=key[1]))

        run = MeasuringRun(self._bounds)
        job = self._job(version, key[1])
        ended = await run.run(self._launcher, job, on_line, lambda: key in self._wanted)
        if said:
            return said[-1]
        return ValidationReport(version_id=version.id, attempt=key[1], ok=False, reason=ended)

    def _job(self, version: VersionEntry, attempt: int) -> Job:
        return measuring.job(
            "validation",
            version,
            self._log_dir,
            device=version.options.get("device", "cpu"),
            cpu_core=self._cpu_core,
            arguments=("--validate",),
            attempt=attempt,
        )
