"""Delivers a process's reports: in order of need, more than once if it must, counted once.

A report keeps its (process, sequence) over every attempt, also across a restart: what could not be
delivered waits in the spool file. Memory and disk are bounded:

- replica and host reports: only the latest per replica or host waits;
- usage: rows of the same minute and dimension are added up while they wait; beyond `max_usage_rows`
  minutes are folded into hours (sums stay exact). Usage is never dropped.
- validation and tuning reports: rare, all of them wait; of what keys did one waits, the next one adds up.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import structlog

from serving.contract import (
    EventReport,
    HostReport,
    KeysReport,
    ReplicaReport,
    Report,
    ReportBody,
    TuningReport,
    UsageReport,
    UsageRow,
    ValidationReport,
    decode_report,
)
from serving.ending import end_tasks
from serving.seam import Seam, SeamUnavailable
from serving.seam.private_file import PrivateFile

log = structlog.get_logger(__name__)

BATCH_REPORTS = 200
USAGE_ROWS_PER_REPORT = 500
HOUR_S = 3600
PATIENCE_S = 1.0
"""How long an attempt may take before what waits for it goes to disk."""
_PROCESS_CHARS = 180


class Spooled(msgspec.Struct, frozen=True):
    """One line of the spool file."""

    process: str
    sequence: int
    body: msgspec.Raw


class ReportOutbox:
    """`put` never blocks. `start()` then `stop()`; what `stop` cannot deliver is found by the next start."""

    def __init__(
        self,
        seam: Seam,
        process: str,
        spool: Path,
        *,
        send_interval_s: float = 0.25,
        max_usage_rows: int = 20_000,
    ) -> None:
        self._seam = seam
        # Sequences start anew with each start of the process: the suffix keeps them apart for good.
        self.process = f"{process[:_PROCESS_CHARS]}:{secrets.token_hex(4)}"
        self._spool = PrivateFile(spool)
        self._send_interval_s = send_interval_s
        self._max_usage_rows = self._fold_above_rows = max_usage_rows
        self._sequence = 0
        self._waiting: dict[tuple[str, ...], ReportBody] = {}
        self._usage: dict[UsageRow, UsageRow] = {}
        self._sent: list[Report] = []
        """Attempted at least once: frozen under their sequences until an attempt succeeds."""
        self._wake = asyncio.Event()
        self._sending = asyncio.Lock()
        self._spooling = asyncio.Lock()
        """Nothing is numbered while a spool file is written, or the two could disagree."""
        self._task: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._is_spooled = False
        self._spool_due = 0.0

    # -------------------------------------------------------------------- what processes call

    def put(self, body: ReportBody) -> None:
        """Take a report over; it is delivered as soon as the seam can be reached."""
        if isinstance(body, UsageReport):
            self._add_usage(body.rows)
        else:
            self._waiting[_slot(body)] = body
        self._wake.set()

    def put_numbered(self, reports: Sequence[Report]) -> None:
        """Take over reports that have numbers of another process's name: whoever made them keeps them safe."""
        self._sent += reports
        self._wake.set()

    def holds(self, process: str) -> bool:
        """Whether reports of that name are not yet known to be delivered."""
        return any(report.process == process for report in self._sent)

    def has_undelivered(self, kind: type[ReportBody]) -> bool:
        """Whether a report of that kind is not yet known to be delivered."""
        bodies = (*self._waiting.values(), *(report.body for report in self._sent))
        return any(isinstance(body, kind) for body in bodies)

    @property
    def pending(self) -> int:
        """Reports and usage rows not yet known to be delivered."""
        return len(self._sent) + len(self._waiting) + len(self._usage)

    async def start(self, inherited: Sequence[Report] = ()) -> None:
        """Take over what an earlier start left behind, then deliver in the background.

        `inherited` is on disk here too when this returns.
        """
        self.recover()
        if inherited:
            self._sent += inherited
            await self._save()
        self._task = asyncio.create_task(self._deliver_forever())

    def recover(self) -> None:
        """Take over what an earlier start left behind, under the numbers it was written with."""
        self._sent = _read(self._spool.read())
        self._is_spooled = bool(self._sent)

    async def stop(self, timeout_s: float = 3.0) -> None:
        """Deliver what is left within `timeout_s`; the rest stays in the spool file."""
        self._stopping.set()
        self._wake.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                if self._task is not None:
                    await self._task
                await self.flush()
        if self.pending:
            await self._save()

    async def flush(self) -> bool:
        """Send everything that waits; False when the seam cannot be reached."""
        async with self._sending:
            while self._sent or self._waiting or self._usage:
                if not self._sent:
                    await self._freeze()
                if not await self._send():
                    return False
            async with self._spooling:
                await self._clear_spool()
        self._fold_above_rows = self._max_usage_rows
        return True

    # -------------------------------------------------------------------- delivering

    async def _deliver_forever(self) -> None:
        while not self._stopping.is_set():
            if not self.pending:
                await self._wake.wait()
            self._wake.clear()
            try:
                await self._attempt()
            except Exception:  # loop top
                log.exception("reports.delivery_failed")
            await self._pause()

    async def _attempt(self) -> None:
        """Deliver. While a database that accepts and says nothing is waited for, the disk is up to date."""
        flushing = asyncio.create_task(self.flush())
        try:
            while not flushing.done():
                await asyncio.wait({flushing}, timeout=PATIENCE_S)
                if not flushing.done() or not flushing.result():
                    await self._save_when_due()
        finally:
            await end_tasks([flushing])

    async def _send(self) -> bool:
        batch = self._sent[:BATCH_REPORTS]
        try:
            await self._seam.send_reports(batch)
        except SeamUnavailable as error:
            if not self._is_spooled:
                log.warning("reports.waiting", reason=str(error), pending=self.pending)
            return False
        del self._sent[: len(batch)]
        return True

    async def _pause(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._send_interval_s):
                await self._stopping.wait()

    async def _freeze(self) -> None:
        """Give waiting reports their sequences; once attempted they no longer change.

        A spool file numbers them too, and must not keep other numbers than the ones attempted: whoever
        starts after a crash would count them twice.
        """
        async with self._spooling:
            for slot in list(self._waiting)[:BATCH_REPORTS]:
                self._number(self._waiting.pop(slot))
            while self._usage and len(self._sent) < BATCH_REPORTS:
                rows = [self._usage.pop(key) for key in list(self._usage)[:USAGE_ROWS_PER_REPORT]]
                self._number(UsageReport(rows=tuple(rows)))
            if self._is_spooled:
                await self._write_spool()

    def _number(self, body: ReportBody) -> None:
        self._sequence += 1
        self._sent.append(Report(self.process, self._sequence, body))

    # -------------------------------------------------------------------- usage adds up

    def _add_usage(self, rows: Iterable[UsageRow]) -> None:
        for row in rows:
            key = _dimension(row)
            known = self._usage.get(key)
            self._usage[key] = row if known is None else _sum(known, row)
        if len(self._usage) > self._fold_above_rows:
            self._fold_into_hours()

    def _fold_into_hours(self) -> None:
        folded, self._usage = self._usage, {}
        for row in folded.values():
            hourly = msgspec.structs.replace(row, minute=row.minute - row.minute % HOUR_S)
            key = _dimension(hourly)
            known = self._usage.get(key)
            self._usage[key] = hourly if known is None else _sum(known, hourly)
        log.warning("usage.folded_into_hours", rows_before=len(folded), rows_after=len(self._usage))
        # Wait for twice of what is left, or folding would run on every row.
        self._fold_above_rows = max(self._fold_above_rows, 2 * len(self._usage))

    # -------------------------------------------------------------------- spool file

    async def _save_when_due(self) -> None:
        if time.monotonic() < self._spool_due:
            return
        started = time.monotonic()
        await self._save()
        took_s = time.monotonic() - started
        self._spool_due = time.monotonic() + max(1.0, 20 * took_s)

    async def _save(self) -> None:
        async with self._spooling:
            await self._write_spool()

    async def _write_spool(self) -> None:
        """Write everything not delivered; what was never attempted under the numbers it would get next."""
        waiting = [*self._waiting.values(), *_chunks(list(self._usage.values()))]
        numbered = [
            Report(self.process, self._sequence + offset, body)
            for offset, body in enumerate(waiting, start=1)
        ]
        lines = [msgspec.json.encode(report) + b"\n" for report in (*self._sent, *numbered)]
        try:
            await asyncio.to_thread(self._spool.replace, lines)
            self._is_spooled = True
        except OSError as error:
            log.error("reports.not_spooled", path=str(self._spool.path), error=str(error))
            await self._clear_spool()  # an older file has numbers that may since mean something else

    async def _clear_spool(self) -> None:
        if self._is_spooled:
            self._is_spooled = False
            await asyncio.to_thread(self._spool.remove)


def _slot(
    body: ReplicaReport | HostReport | ValidationReport | EventReport | TuningReport | KeysReport,
) -> tuple[str, ...]:
    if isinstance(body, ReplicaReport):
        return ("replica", body.replica_id)
    if isinstance(body, HostReport):
        return ("host", body.host)
    if isinstance(body, EventReport):
        return ("event", body.replica_id, body.event)
    if isinstance(body, KeysReport):
        return ("keys", str(body.at))
    if isinstance(body, TuningReport):
        index = "" if body.row is None else str(body.row.index)
        return ("tuning", body.tuning_id, index, str(body.is_done))
    return ("validation", body.version_id, str(body.attempt))


def _dimension(row: UsageRow) -> UsageRow:
    """The row's identity: the row without its counts."""
    return UsageRow(
        minute=row.minute,
        tenant_id=row.tenant_id,
        key_id=row.key_id,
        model=row.model,
        version_id=row.version_id,
        sla_class=row.sla_class,
    )


def _sum(a: UsageRow, b: UsageRow) -> UsageRow:
    return msgspec.structs.replace(
        a,
        requests=a.requests + b.requests,
        failed=a.failed + b.failed,
        cancelled=a.cancelled + b.cancelled,
        rows=a.rows + b.rows,
        tokens=a.tokens + b.tokens,
        device_us=a.device_us + b.device_us,
        cost_micro=a.cost_micro + b.cost_micro,
        cancelled_us=a.cancelled_us + b.cancelled_us,
    )


def _chunks(rows: Sequence[UsageRow]) -> list[UsageReport]:
    return [
        UsageReport(rows=tuple(rows[start : start + USAGE_ROWS_PER_REPORT]))
        for start in range(0, len(rows), USAGE_ROWS_PER_REPORT)
    ]


def _read(content: bytes | None) -> list[Report]:
    lines = (content or b"").splitlines()
    return [report for line in lines if (report := _parse(line)) is not None]


def _parse(line: bytes) -> Report | None:
    try:
        spooled = msgspec.json.decode(line, type=Spooled)
        return Report(spooled.process, spooled.sequence, decode_report(bytes(spooled.body)))
    except msgspec.DecodeError as error:
        log.error("reports.spooled_line_unreadable", error=str(error))
        return None
