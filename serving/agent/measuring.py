"""Runs that end by themselves (validation, tuning): one worker process each, bounded in time and memory.

A version that never loads, or that eats all memory, cannot take the host down.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import psutil

from serving.agent.launchers import Handle, Job, Launcher
from serving.contract import OptionValue, VersionEntry

WATCH_EVERY_S = 0.25


@dataclass(frozen=True, slots=True)
class Bounds:
    timeout_s: float
    memory_bytes: int


def job(
    kind: str,
    version: VersionEntry,
    log_dir: Path,
    *,
    device: OptionValue,
    cpu_core: int | None,
    arguments: tuple[str, ...],
    **more: object,
) -> Job:
    """A worker process of its own for one measurement of a version; `more` goes into its specification."""
    name = f"{kind}-{version.id}"
    threads = int(version.options.get("threads", 1))
    spec = {
        "version": version,
        "replica_id": name,
        "device": device,
        "threads": threads,
        # Several threads on one core would only measure how they take turns.
        "cpu_core": cpu_core if threads == 1 else None,
        **more,
    }
    return Job(name, msgspec.json.encode(spec), log_dir / f"{name}.log", arguments)


class MeasuringRun:
    """One process from start to end."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def run(
        self, launcher: Launcher, job: Job, on_line: Callable[[bytes], None], is_wanted: Callable[[], bool]
    ) -> str:
        """How it ended, in words. The process is gone when this returns, or will be: it was killed."""
        try:
            handle = await launcher.launch(job, on_line, self._on_exit)
        except OSError as error:
            return f"the worker could not be started: {error}"
        try:
            return await self._watch(handle, is_wanted)
        finally:
            with contextlib.suppress(ProcessLookupError):
                handle.kill()

    async def _watch(self, handle: Handle, is_wanted: Callable[[], bool]) -> str:
        deadline = asyncio.get_running_loop().time() + self._bounds.timeout_s
        while is_wanted():
            if asyncio.get_running_loop().time() > deadline:
                return f"it did not finish within {self._bounds.timeout_s:.0f} s"
            if _resident_bytes(handle.pid) > self._bounds.memory_bytes:
                return f"it needed more than {self._bounds.memory_bytes >> 20} MiB of memory"
            with contextlib.suppress(TimeoutError):
                return await asyncio.wait_for(asyncio.shield(self._ended), WATCH_EVERY_S)
        return "it is no longer wanted"

    def _on_exit(self, description: str) -> None:
        if not self._ended.done():
            self._ended.set_result(description)


def _resident_bytes(pid: int) -> int:
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0
