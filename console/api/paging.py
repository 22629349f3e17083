"""Cursor pages: `?limit=&after=` in, `{"data", "has_more", "next_cursor"}` out.

A cursor holds the sort key of the last row, so a page costs the same wherever it is, rows that come or go
meanwhile neither repeat nor hide others, and one that points at a deleted row still works.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from django.db.models import Model, Q, QuerySet

from tenants.errors import Invalid

DEFAULT_LIMIT = 50
MAX_LIMIT = 200
MAX_CURSOR_CHARS = 200
T = TypeVar("T", bound=Model)


def _moment(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)


def _word(text: str) -> str:
    if not (text.isascii() and text.isprintable()):
        raise ValueError(text)
    return text


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise ValueError(text)
    return int(text)


@dataclass(frozen=True, slots=True)
class Order:
    """Columns, newest (largest) first, that together tell every row from every other; how each is read back."""

    columns: tuple[tuple[str, Callable[[str], Any]], ...]

    def after(self, cursor: str) -> Q:
        """The rows behind the cursor. Raises `Invalid` for one that was never handed out."""
        try:
            parts = urlsafe_b64decode(cursor.encode("ascii")).decode().split("|")
            pairs = zip(self.columns, parts, strict=True)
            values = {name: read(part) for (name, read), part in pairs}
        except (ValueError, binascii.Error, OverflowError):
            raise Invalid({"after": "This cursor is not of this list."}) from None
        return self._behind(values)

    def cursor(self, row: Model) -> str:
        return self.cursor_at(*(getattr(row, name) for name, _ in self.columns))

    def cursor_at(self, *values: Any) -> str:
        """Of a row with these values of the columns, whether or not there is one."""
        parts = [v.isoformat() if isinstance(v, datetime) else str(v) for v in values]
        return urlsafe_b64encode("|".join(parts).encode()).decode()

    def _behind(self, values: dict[str, Any]) -> Q:
        found, same = Q(), Q()
        for name, value in values.items():
            found |= same & Q(**{f"{name}__lt": value})
            same &= Q(**{name: value})
        return found


NEWEST = Order((("created_at", _moment), ("pk", _word)))
NEWEST_NUMBERED = Order((("created_at", _moment), ("pk", _number)))
NEWEST_SINCE = Order((("since", _moment), ("pk", _word)))
NUMBERED = Order((("pk", _number),))
BY_SEQUENCE = Order((("seq", _number),))


def page_of(
    rows: QuerySet[T],
    document: Callable[[T], Any],
    *,
    limit: int = DEFAULT_LIMIT,
    after: str = "",
    order: Order = NEWEST,
) -> dict[str, Any]:
    """Newest first. Raises `Invalid` for a cursor that is not of this list."""
    found = rows.order_by(*(f"-{name}" for name, _ in order.columns))
    if after:
        found = found.filter(order.after(after))
    page = list(found[: limit + 1])
    has_more = len(page) > limit
    return {
        "data": [document(row) for row in page[:limit]],
        "has_more": has_more,
        "next_cursor": order.cursor(page[limit - 1]) if has_more else None,
    }
