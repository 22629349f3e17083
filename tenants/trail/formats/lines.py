"""JSON lines: one event, one line, UTF-8."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, BinaryIO

import orjson

from tenants.trail.canonical import record_text
from tenants.trail.formats.writer import Row

Line = Callable[[Row], bytes | dict[str, Any]]


class JsonLines:
    """Writes what `line` makes of each row: bytes as they are, objects as JSON."""

    def __init__(self, out: BinaryIO, line: Line) -> None:
        self._out, self._line = out, line

    def write(self, rows: Iterable[Row]) -> None:
        made = (self._line(row) for row in rows)
        self._out.writelines(
            each + b"\n" if isinstance(each, bytes) else orjson.dumps(each) + b"\n" for each in made
        )

    def close(self) -> None:
        pass


def native_line(row: Row) -> bytes:
    """The record as it was hashed, byte for byte, between `{"record":` and the last 154 bytes."""
    tail = f',"prev_hash":"{bytes(row["prev_hash"]).hex()}","hash":"{bytes(row["hash"]).hex()}"}}'
    return b'{"record":' + record_text(row).encode() + tail.encode()
