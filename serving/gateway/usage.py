"""What every key used, per minute: added up here, handed over every two seconds, and lost with no process.

The sums live in a journal (`usage_journal`) that a `kill -9` leaves behind. They are handed over as reports that
carry numbers of their own, one generation after the other was delivered; while the seam is away, they add up.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec
import structlog

from serving.contract import Report, SlaClass, UsageReport, UsageRow
from serving.gateway.routing import Lane
from serving.gateway.usage_journal import COUNTS, Cells, Generation, JournalFile, Slot
from serving.gateway.visit import Visit
from serving.prices import PARTS_PER_MICRO

log = structlog.get_logger("tidegate.gateway.usage")

MAX_RESTS = 100_000
ROWS_PER_REPORT = 500
MAX_REPORTS = 1024
"""Of one generation: they are numbered `generation × MAX_REPORTS + 0, 1, …`."""
MOST_PARTS = 1 << 62
"""Of one cell: a request adds less than as much again."""
MAX_OPEN = 3000
"""With more sums open they are handed over at once, in memory: the journal's files have no room for two more."""


class Outbox(Protocol):
    """`ReportOutbox`, as far as usage is concerned. Nothing blocks."""

    @property
    def process(self) -> str: ...

    def put(self, body: UsageReport) -> None: ...

    def put_numbered(self, reports: list[Report]) -> None: ...

    def holds(self, process: str) -> bool: ...


class Account(NamedTuple):
    """Whose usage a row is."""

    tenant_id: str
    key_id: str
    model: str
    version_id: str
    sla_class: SlaClass


class Used:
    """Sums of one minute and account since they were last handed over. The cells may be those of a file."""

    __slots__ = ("_cells",)

    def __init__(self, cells: Cells) -> None:
        self._cells = cells

    def count_answer(self, rows: int, tokens: int, device_us: int, cost_parts: int = 0) -> None:
        cells = self._cells
        cells[0] += 1
        cells[3] += rows
        cells[4] += tokens
        cells[5] += device_us
        if cost_parts:
            self._add_cost(cost_parts)

    def count_failure(self) -> None:
        self._cells[0] += 1
        self._cells[1] += 1

    def count_cancellation(self) -> None:
        self._cells[0] += 1
        self._cells[2] += 1

    def add_device_time(self, device_us: int, cost_parts: int = 0, *, is_cancelled: bool = False) -> None:
        """Device time of a request that was counted otherwise, or will be."""
        self._cells[5] += device_us
        if is_cancelled:
            self._cells[6] += device_us
        if cost_parts:
            self._add_cost(cost_parts)

    def _add_cost(self, parts: int) -> None:
        """Whole micro-units go into a cell of their own before their parts outgrow theirs."""
        cells = self._cells
        held = cells[8] + parts
        if held < MOST_PARTS:
            cells[8] = held
            return
        whole, cells[8] = divmod(held, PARTS_PER_MICRO)
        cells[7] += whole

    @property
    def counts(self) -> list[int]:
        """requests, failed, cancelled, rows, tokens, device µs, cancelled µs, cost in micro-units, parts of one."""
        return list(self._cells)

    @property
    def requests(self) -> int:
        return self._cells[0]

    @property
    def failed(self) -> int:
        return self._cells[1]

    @property
    def cancelled(self) -> int:
        return self._cells[2]

    @property
    def tokens(self) -> int:
        return self._cells[4]

    @property
    def rows(self) -> int:
        return self._cells[3]

    @property
    def device_us(self) -> int:
        return self._cells[5]


class Usage:
    """`start()` before anything is counted; `stop()` hands over what is left."""

    def __init__(
        self,
        outbox: Outbox,
        directory: Path | None = None,
        on_seen: Callable[[Visit], None] | None = None,
    ) -> None:
        """Without a directory sums live in memory alone.

        `on_seen` gets one request of each lane, key and minute, and one more after each `flush`.
        """
        self._outbox = outbox
        self._on_seen = on_seen
        self._directory = directory
        self._process = f"{outbox.process}:u"
        self._files: list[JournalFile] = []
        self._closing: list[JournalFile] = []
        self._number = 0
        self._is_on_its_way = False
        """Whether the generation before is handed over, and not yet known to be delivered."""
        self._open: dict[tuple[int, Account], Used] = {}
        self._near: dict[tuple[Lane, str, int], Used] = {}
        """The same sums where they are found in a third of the time."""
        self._rests: dict[Account, int] = {}

    def recover(self) -> list[Report]:
        """What a killed process left, under its numbers. Until `start` a second call finds it again."""
        if self._directory is None:
            return []
        try:
            self._files = [JournalFile(self._directory / f"usage-{turn}.journal") for turn in (0, 1)]
        except OSError as error:
            log.error("usage.not_journalled", path=str(self._directory), error=str(error))
            return []
        left = [found for file in self._files if (found := _found(file))]
        return [report for generation in left for report in self._reports(*generation)]

    def start(self) -> None:
        """Begin anew; what was recovered must be safe elsewhere."""
        for file in self._files:
            file.begin(self._process, 0)
        self._next_generation()

    def of(self, lane: Lane, key_id: str, now: float, visit: Visit | None = None) -> Used:
        """The sums to add to. `now` is Unix time."""
        minute = int(now) // 60 * 60
        used = self._near.get((lane, key_id, minute))
        if used is None:
            used = self._near[lane, key_id, minute] = self._find(lane, key_id, minute)
            if visit is not None and self._on_seen is not None:
                self._on_seen(visit)
        return used

    def _find(self, lane: Lane, key_id: str, minute: int) -> Used:
        account = Account(lane.tenant_id, key_id, lane.model, lane.version.id, lane.profile.sla_class)
        key = (minute, account)
        used = self._open.get(key)
        if used is None:
            used = self._open[key] = Used(self._cells(*key))
        return used

    def flush(self) -> None:
        """Hand over everything since the last time, unless that is still on its way."""
        self._forget_delivered()
        self._near.clear()  # lanes of former configurations are not kept, however long nothing is delivered
        if not self._open:
            return
        if not self._files or len(self._open) > MAX_OPEN:
            self._outbox.put(UsageReport(rows=tuple(self._row(slot) for slot in self._taken())))
            self._restart_generation()
        elif not self._is_on_its_way:
            self._hand_over()
            self._next_generation()
        if len(self._rests) > MAX_RESTS:
            self._rests.clear()  # each is worth less than a millionth of the currency

    def stop(self) -> None:
        """Hand over what is left, whatever is on its way; later usage is counted in memory."""
        if self._open and self._files:
            self._hand_over()
        self._closing, self._files = self._files, []
        self._is_on_its_way = False
        self.flush()

    def close(self) -> None:
        """After the outbox has delivered or saved everything: nothing is left to be found."""
        for file in self._closing:
            file.begin(self._process, 0)

    def _forget_delivered(self) -> None:
        """At once: found again long after, it would be counted twice, for numbers are not remembered forever."""
        if self._is_on_its_way and not self._outbox.holds(self._process):
            self._is_on_its_way = False
            self._files[(self._number + 1) % 2].begin(self._process, 0)

    def _hand_over(self) -> None:
        self._is_on_its_way = True
        self._outbox.put_numbered(self._reports(self._process, self._number, self._taken()))

    def _taken(self) -> list[Slot]:
        taken, self._open = self._open, {}
        self._near.clear()
        return [Slot([str(minute), *account], used.counts) for (minute, account), used in taken.items()]

    def _next_generation(self) -> None:
        self._number += 1
        self._restart_generation()

    def _restart_generation(self) -> None:
        if self._files:
            self._files[self._number % 2].begin(self._process, self._number)

    def _cells(self, minute: int, account: Account) -> Cells:
        cells = self._files[self._number % 2].add([str(minute), *account]) if self._files else None
        return [0] * COUNTS if cells is None else cells

    # -------------------------------------------------------------------- rows

    def _reports(self, process: str, number: int, slots: list[Slot]) -> list[Report]:
        rows = [self._row(slot) for slot in slots]
        chunks = [rows[start : start + ROWS_PER_REPORT] for start in range(0, len(rows), ROWS_PER_REPORT)]
        return [
            Report(process, number * MAX_REPORTS + index, UsageReport(rows=tuple(chunk)))
            for index, chunk in enumerate(chunks)
        ]

    def _row(self, slot: Slot) -> UsageRow:
        minute, tenant_id, key_id, model, version_id, sla_class = slot.identity
        requests, failed, cancelled, rows, tokens, device_us, cancelled_us, cost_micro, parts = slot.counts
        account = Account(tenant_id, key_id, model, version_id, sla_class)  # type: ignore[arg-type]
        return UsageRow(
            minute=int(minute),
            **account._asdict(),
            requests=requests,
            failed=failed,
            cancelled=cancelled,
            rows=rows,
            tokens=tokens,
            device_us=device_us,
            cost_micro=cost_micro + self._whole(account, parts),
            cancelled_us=cancelled_us,
        )

    def _whole(self, account: Account, parts: int) -> int:
        """Micro-units; the rest below one goes into the account's next row, so that sums stay exact."""
        whole, self._rests[account] = divmod(parts + self._rests.get(account, 0), PARTS_PER_MICRO)
        return whole


def _found(file: JournalFile) -> Generation | None:
    try:
        return file.found()
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
        log.error("usage.journal_unreadable", error=str(error))
        return None
