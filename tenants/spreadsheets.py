"""CSV for people (RFC 4180, UTF-8): what is a name in the ledger must be no formula in a spreadsheet."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable
from typing import Any

_FORMULA = tuple("=+-@\t\r\n＝＋－＠|")  # the wide ones are formulas in East Asian editions
_BLANK = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u200b-\u200f\u2060\ufeff]*")
"""What spreadsheets drop, or do not show, before they look for a formula."""


def cell(value: Any) -> str:
    """Text as a spreadsheet shows it: bytes as hex digits, and an apostrophe before what it took for a formula."""
    if value is None:
        return ""
    if isinstance(value, bytes | memoryview):
        return bytes(value).hex()
    text = str(value)
    return f"'{text}" if not isinstance(value, int | float) and _is_formula(text) else text


def _is_formula(text: str) -> bool:
    """Also behind blanks, and what begins with one that breaks a line or a cell by itself."""
    return text.startswith(("\t", "\r", "\n")) or _BLANK.sub("", text, count=1).startswith(_FORMULA)


def lines(rows: Iterable[Iterable[Any]]) -> str:
    """Whole lines, each ended by CRLF, quoted where needed."""
    text = io.StringIO()
    csv.writer(text).writerows([cell(value) for value in row] for row in rows)
    return text.getvalue()
