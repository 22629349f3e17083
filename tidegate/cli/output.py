"""What a command prints: columns for people, one JSON document a line for programs."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import typer

Row = Mapping[str, Any]
_OBEYED = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Categories of what a terminal obeys instead of showing it, or cannot write: escapes, marks of direction, halves."""
_JOINERS = "\u200c\u200d"
"""Letters of some scripts hang together, or not, by these."""


def rows(found: Iterable[Row], columns: Sequence[str], as_json: bool) -> None:
    """JSON is written row by row; columns need all rows for their widths."""
    if as_json:
        for row in found:
            typer.echo(_line(row))
        return
    table = [[name.replace("_", " ") for name in columns]]
    table += [[cell(row.get(name)) for name in columns] for row in found]
    widths = [max(len(line[index]) for line in table) for index in range(len(columns))]
    for line in table:
        typer.echo("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def one(document: Row, as_json: bool) -> None:
    if as_json:
        typer.echo(_line(document))
        return
    width = max(len(name) for name in document)
    for name, value in document.items():
        typer.echo(f"{name.replace('_', ' ').ljust(width)}  {cell(value)}")


def visible(text: str, but: str = "") -> str:
    """What others named or answered, with escapes in place of what would steer the terminal; `but` stays."""
    return "".join(_escaped(each) if _is_obeyed(each) and each not in but else each for each in text)


def _is_obeyed(character: str) -> bool:
    return unicodedata.category(character) in _OBEYED and character not in _JOINERS


def _escaped(character: str) -> str:
    return json.dumps(character)[1:-1] if character != "\x7f" else "\\u007f"


def _line(document: Row) -> str:
    """The escapes are JSON's own: a program reads what was sent."""
    return visible(json.dumps(document, ensure_ascii=False))


def cell(value: Any) -> str:
    return visible(_said(value))


def _said(value: Any) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return ", ".join(value) or "-"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value)
