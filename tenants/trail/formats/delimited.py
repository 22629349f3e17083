"""CSV as RFC 4180 has it: UTF-8, comma, CRLF, a header. No cell is a formula to a spreadsheet."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from io import StringIO
from typing import Any, BinaryIO

from tenants.trail.formats.writer import Row

COLUMNS = (
    "chain", "position", "seq", "event_id", "at", "tenant_id", "tenant_name", "actor_type", "actor_id",
    "actor_name", "action", "target_type", "target_id", "target_name", "outcome", "reason", "before", "after",
    "request_id", "trace_id", "ip", "user_agent", "prev_hash", "hash",
)  # fmt: skip
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


class CsvWriter:
    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._put([list(COLUMNS)])

    def write(self, rows: Iterable[Row]) -> None:
        self._put([[cell(row[name]) for name in COLUMNS] for row in rows])

    def close(self) -> None:
        pass

    def _put(self, lines: list[list[str]]) -> None:
        text = StringIO(newline="")
        csv.writer(text, lineterminator="\r\n").writerows(lines)
        self._out.write(text.getvalue().encode())


def cell(value: Any) -> str:
    """A spreadsheet must not take a name for a formula: what begins like one gets an apostrophe."""
    if value is None:
        return ""
    if isinstance(value, bytes | memoryview):
        return bytes(value).hex()
    text = str(value)
    return f"'{text}" if text.startswith(_FORMULA) else text
