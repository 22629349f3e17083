"""Parquet, with pyarrow (requirements-parquet.txt): every column a text, numbers and times as what they are."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, BinaryIO

from tenants.trail.formats.delimited import COLUMNS
from tenants.trail.formats.writer import Row

_NUMBERS = frozenset({"position", "seq"})
_BYTES = frozenset({"prev_hash", "hash"})


class ParquetFile:
    """Raises `ImportError` where pyarrow is not installed."""

    def __init__(self, out: BinaryIO) -> None:
        import pyarrow
        from pyarrow import parquet

        self._arrow = pyarrow
        self._schema = pyarrow.schema([(name, self._kind(name)) for name in COLUMNS])
        self._writer = parquet.ParquetWriter(out, self._schema, compression="zstd")

    def write(self, rows: Iterable[Row]) -> None:
        """One row group a call."""
        listed = list(rows)
        columns = {name: [_value(name, row[name]) for row in listed] for name in COLUMNS}
        self._writer.write_table(self._arrow.table(columns, schema=self._schema))

    def close(self) -> None:
        self._writer.close()

    def _kind(self, name: str) -> Any:
        if name in _NUMBERS:
            return self._arrow.int64()
        if name == "at":
            return self._arrow.timestamp("us", tz="UTC")
        return self._arrow.binary(32) if name in _BYTES else self._arrow.string()


def _value(name: str, value: Any) -> Any:
    if name == "at":
        return datetime.fromisoformat(value)
    return bytes(value) if name in _BYTES else value
