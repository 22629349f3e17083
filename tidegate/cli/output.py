"""What a command prints: columns for people, one JSON document a line for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import typer

Row = Mapping[str, Any]


def rows(found: Iterable[Row], columns: Sequence[str], as_json: bool) -> None:
    """JSON is written row by row; columns need all rows for their widths."""
    if as_json:
        for row in found:
            typer.echo(json.dumps(row, ensure_ascii=False))
        return
    table = [[name.replace("_", " ") for name in columns]]
    table += [[cell(row.get(name)) for name in columns] for row in found]
    widths = [max(len(line[index]) for line in table) for index in range(len(columns))]
    for line in table:
        typer.echo("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def one(document: Row, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(document, ensure_ascii=False))
        return
    width = max(len(name) for name in document)
    for name, value in document.items():
        typer.echo(f"{name.replace('_', ' ').ljust(width)}  {cell(value)}")


def cell(value: Any) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return ", ".join(value) or "-"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value)
