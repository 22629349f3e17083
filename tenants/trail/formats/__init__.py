"""How exported events are written: one module per format, one writer each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import BinaryIO

from tenants.trail.formats.cadf import cadf
from tenants.trail.formats.delimited import CsvWriter
from tenants.trail.formats.ecs import ecs
from tenants.trail.formats.lines import JsonLines, native_line
from tenants.trail.formats.ocsf import ocsf
from tenants.trail.formats.table import ParquetFile
from tenants.trail.formats.writer import Writer


@dataclass(frozen=True, slots=True)
class Format:
    """How a format is called, what its files are, and who writes them."""

    sentence: str
    extension: str
    media_type: str
    open: Callable[[BinaryIO], Writer]


_LINES = ("jsonl", "application/jsonl")

FORMATS: dict[str, Format] = {
    "csv": Format("CSV, for spreadsheets", "csv", "text/csv; charset=utf-8", CsvWriter),
    "jsonl": Format("JSON lines with hashes, for proof", *_LINES, lambda out: JsonLines(out, native_line)),
    "ocsf": Format("JSON lines, OCSF", *_LINES, lambda out: JsonLines(out, ocsf)),
    "ecs": Format("JSON lines, Elastic Common Schema", *_LINES, lambda out: JsonLines(out, ecs)),
    "cadf": Format("JSON lines, CADF", *_LINES, lambda out: JsonLines(out, cadf)),
    "parquet": Format("Parquet, for analysis", "parquet", "application/vnd.apache.parquet", ParquetFile),
}


def available_formats() -> dict[str, Format]:
    """Those that can be written here: Parquet wants an optional package."""
    has_parquet = find_spec("pyarrow") is not None
    return {name: each for name, each in FORMATS.items() if name != "parquet" or has_parquet}
