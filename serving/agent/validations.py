"""Validation runs, one at a time: each a worker process that measures a version and ends by itself.

Bounded in time and memory, so that a version that never loads cannot take the host down.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import psutil
import structlog

from serving.agent.launchers import Handle, Job, Launcher
from serving.contract import ValidationEntry, ValidationReport, VersionEntry, decode_report

log = structlog.get_logger(__name__)

TIMEOUT_S = 600.0
WATCH_EVERY_S = 0.25


@dataclass(frozen=True, slots=True)
class Bounds:
    timeout_s: float
    memory_bytes: int


class Validations:
    """`want` with every change of the configuration; reports come through `report`, each attempt once."""

    def __init__(
        self,
        launcher: Launcher,
        log_dir: Path,
        bounds: Bounds,
        report: Callable[[ValidationReport], None],
        cpu_core: int | None = None,
    ) -> None:
        self._launcher = launcher
        self._log_dir = log_dir
        self._bounds = bounds
        self._report = report
        self._cpu_core = cpu_core
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
            await self._run(key, self._wanted[key])

    async def _run(self, key: tuple[str, int], version: VersionEntry) -> None:
        log.info("validation.started", version=version.id, attempt=key[1])
        run = ValidationRun(version, key[1], self._bounds)
        report = await run.measure(self._launcher, self._log_dir, self._cpu_core, lambda: key in self._wanted)
        self._done.add(key)
        if report is not None:
            log.info("validation.finished", version=version.id, ok=report.ok, reason=report.reason)
            self._report(report)


class ValidationRun:
    """One process from start to report."""

    def __init__(self, version: VersionEntry, attempt: int, bounds: Bounds) -> None:
        self._version = version
        self._attempt = attempt
        self._bounds = bounds
        self._report: ValidationReport | None = None
        self._ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def measure(
        self, launcher: Launcher, log_dir: Path, cpu_core: int | None, is_wanted: Callable[[], bool]
    ) -> ValidationReport | None:
        """The worker's report, or one that says why there is none; None when it is no longer wanted."""
        try:
            handle = await launcher.launch(self._job(log_dir, cpu_core), self._on_line, self._on_exit)
        except OSError as error:
            return self._failure(f"the validation worker could not be started: {error}")
        try:
            ended = await self._watch(handle, is_wanted)
        finally:
            with contextlib.suppress(ProcessLookupError):
                handle.kill()
        if not is_wanted():
            return None
        return self._report or self._failure(ended)

    async def _watch(self, handle: Handle, is_wanted: Callable[[], bool]) -> str:
        """How it ended: by itself, or beyond a bound."""
        deadline = asyncio.get_running_loop().time() + self._bounds.timeout_s
        while is_wanted():
            if asyncio.get_running_loop().time() > deadline:
                return f"it did not finish within {self._bounds.timeout_s:.0f} s"
            if _resident_bytes(handle.pid) > self._bounds.memory_bytes:
                return f"it needed more than {self._bounds.memory_bytes >> 20} MiB of memory"
            with contextlib.suppress(TimeoutError):
                return await asyncio.wait_for(asyncio.shield(self._ended), WATCH_EVERY_S)
        return "it is no longer wanted"

    def _job(self, log_dir: Path, cpu_core: int | None) -> Job:
        name = f"validation-{self._version.id}"
        spec = {
            "version": self._version,
            "replica_id": name,
            "device": self._version.options.get("device", "cpu"),
            "cpu_core": cpu_core,
            "attempt": self._attempt,
        }
        return Job(name, msgspec.json.encode(spec), log_dir / f"{name}.log", ("--validate",))

    def _on_line(self, line: bytes) -> None:
        with contextlib.suppress(msgspec.DecodeError):  # state lines are for replicas
            body = decode_report(line)
            if isinstance(body, ValidationReport):
                self._report = msgspec.structs.replace(body, attempt=self._attempt)

    def _on_exit(self, description: str) -> None:
        if not self._ended.done():
            self._ended.set_result(description)

    def _failure(self, reason: str) -> ValidationReport:
        return ValidationReport(version_id=self._version.id, attempt=self._attempt, ok=False, reason=reason)


def _resident_bytes(pid: int) -> int:
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0
