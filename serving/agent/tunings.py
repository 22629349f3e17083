"""Tuning runs, one candidate at a time: each in a worker process of its own, at the lowest priority.

A candidate that crashes, hangs or eats memory is a row with a reason; the others go on. Only without the
first one, which the others are compared with, the run ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import structlog

from serving.agent import measuring
from serving.agent.launchers import Job, Launcher
from serving.agent.measuring import Bounds, MeasuringRun
from serving.contract import TuningEntry, TuningReport, TuningRow, VersionEntry

log = structlog.get_logger(__name__)

CANDIDATE_TIMEOUT_S = 300.0
_decode_row = msgspec.json.Decoder(TuningRow).decode


class Tunings:
    """`want` with every change of the configuration; progress comes through `report`.

    `work_dir` holds the reference's answers while a run lasts. `turn` is held for one candidate at a time,
    so that a validation waits for one measurement, not for the whole run.
    """

    def __init__(
        self,
        launcher: Launcher,
        log_dir: Path,
        work_dir: Path,
        bounds: Bounds,
        report: Callable[[TuningReport], None],
        cpu_core: int | None = None,
        turn: asyncio.Lock | None = None,
    ) -> None:
        self._launcher = launcher
        self._log_dir = log_dir
        self._work_dir = work_dir
        self._bounds = bounds
        self._report = report
        self._cpu_core = cpu_core
        self._turn = turn or asyncio.Lock()
        self._wanted: dict[str, tuple[TuningEntry, VersionEntry]] = {}
        self._done: set[str] = set()
        self._changed = asyncio.Event()

    def want(self, entries: Mapping[str, TuningEntry], versions: Mapping[str, VersionEntry]) -> None:
        """Entries of this host; one whose version is not known yet waits."""
        self._wanted = {
            key: (entry, versions[entry.version_id])
            for key, entry in entries.items()
            if entry.version_id in versions
        }
        self._done &= entries.keys()
        self._changed.set()

    async def run_forever(self) -> None:
        shutil.rmtree(self._work_dir, ignore_errors=True)  # what an earlier agent left
        while True:
            key = next((key for key in self._wanted if key not in self._done), None)
            if key is None:
                self._changed.clear()
                await self._changed.wait()
                continue
            await self._run(key)
            self._done.add(key)

    async def _run(self, key: str) -> None:
        entry, version = self._wanted[key]
        log.info("tuning.started", tuning=key, version=version.id, candidates=len(entry.candidates))
        self._report(TuningReport(tuning_id=key))
        try:
            reason = await self._swept(entry, version)
        except OSError as error:  # a full or read-only disk ends this run, not those behind it
            reason = f"the host has no room for its files: {error}"
        if key in self._wanted:
            log.info("tuning.finished", tuning=key, reason=reason)
            self._report(TuningReport(tuning_id=key, is_done=True, reason=reason))

    async def _swept(self, entry: TuningEntry, version: VersionEntry) -> str:
        """As `_sweep`. Raises `OSError`."""
        self._work_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        reference = self._work_dir / f"{entry.id}.npz"
        try:
            return await self._sweep(entry, version, reference)
        finally:
            reference.unlink(missing_ok=True)

    async def _sweep(self, entry: TuningEntry, version: VersionEntry, reference: Path) -> str:
        """Why it ended early; empty when every candidate had its turn."""
        for index in range(len(entry.candidates)):
            async with self._turn:
                if entry.id not in self._wanted:
                    return "it is no longer wanted"
                row = await self._measured(entry, version, index, reference)
            if entry.id not in self._wanted:
                return "it is no longer wanted"
            self._report(TuningReport(tuning_id=entry.id, row=row))
            if index == 0 and not row.ok:
                return f"the reference could not be measured: {row.reason}"
        return ""

    async def _measured(
        self, entry: TuningEntry, version: VersionEntry, index: int, reference: Path
    ) -> TuningRow:
        """The worker's row, or one that says why there is none."""
        said: list[TuningRow] = []

        def on_line(line: bytes) -> None:
            with contextlib.suppress(msgspec.DecodeError):  # state lines are for replicas
                said.append(msgspec.structs.replace(_decode_row(line), index=index))

        job = self._job(entry, version, index, reference)
        run = MeasuringRun(self._bounds)
        ended = await run.run(self._launcher, job, on_line, lambda: entry.id in self._wanted)
        return said[-1] if said else TuningRow(index=index, ok=False, reason=ended)

    def _job(self, entry: TuningEntry, version: VersionEntry, index: int, reference: Path) -> Job:
        options = dict(entry.candidates[index])
        return measuring.job(
            "tuning",
            msgspec.structs.replace(version, options=options),
            self._log_dir,
            device=entry.device,
            cpu_core=self._cpu_core,
            arguments=("--tune",),
            tuning={
                "index": index,
                "reference": str(reference),
                "texts": entry.texts,
                "tensors": entry.tensors,
            },
        )
