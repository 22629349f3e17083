"""CSV for people (RFC 4180, UTF-8): what is a name in the ledger must be no formula in a spreadsheet."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from typing import Any

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def cell(value: Any) -> str:
    """Text as a spreadsheet shows it. A leading character that begins a formula gets an apostrophe before it."""
    if value is None:
        return ""
    text = str(value)
    is_number = isinstance(value, int | float)
    return f"'{text}" if not is_number and text.lstrip(" ").startswith(_FORMULA) else text


def lines(rows: Iterable[Iterable[Any]]) -> str:
    """Whole lines, each ended by CRLF, quoted where needed."""
    text = io.StringIO()
    csv.writer(text).writerows([cell(value) for value in row] for row in rows)
    return text.getvalue()
