"""CSV as RFC 4180 has it: UTF-8, comma, CRLF, a header. No cell is a formula to a spreadsheet."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, BinaryIO

from tenants.spreadsheets import lines
from tenants.trail.formats.writer import Row

COLUMNS = (
    "chain", "position", "seq", "event_id", "at", "tenant_id", "tenant_name", "actor_type", "actor_id",
    "actor_name", "action", "target_type", "target_id", "target_name", "outcome", "reason", "before", "after",
    "request_id", "trace_id", "ip", "user_agent", "prev_hash", "hash",
)  # fmt: skip


class CsvWriter:
    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._put([COLUMNS])

    def write(self, rows: Iterable[Row]) -> None:
        self._put([row[name] for name in COLUMNS] for row in rows)

    def close(self) -> None:
        pass

    def _put(self, rows: Iterable[Iterable[Any]]) -> None:
        self._out.write(lines(rows).encode())
