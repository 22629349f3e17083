"""Cursor pages: `?limit=&after=` in, `{"data", "has_more", "next_cursor"}` out. The cursor is the last id."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from django.db.models import Model, Q, QuerySet

from tenants.errors import Invalid

DEFAULT_LIMIT = 50
MAX_LIMIT = 200
T = TypeVar("T", bound=Model)


def page_of(
    rows: QuerySet[T], asked: Mapping[str, str], document: Callable[[T], dict[str, Any]]
) -> dict[str, Any]:
    """Newest first. Raises `Invalid` for a limit out of range or a cursor that is not of this list."""
    limit = _limit(asked.get("limit", ""))
    after = asked.get("after", "")
    found = rows.order_by("-created_at", "-pk")
    if after:
        last = rows.filter(pk=after).values("created_at").first()
        if last is None:
            raise Invalid({"after": "This cursor is not of this list."})
        older = Q(created_at__lt=last["created_at"])
        found = found.filter(older | Q(created_at=last["created_at"], pk__lt=after))
    page = list(found[: limit + 1])
    has_more = len(page) > limit
    return {
        "data": [document(row) for row in page[:limit]],
        "has_more": has_more,
        "next_cursor": page[limit - 1].pk if has_more else None,
    }


def _limit(text: str) -> int:
    if not text:
        return DEFAULT_LIMIT
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:6]) <= MAX_LIMIT):
        raise Invalid({"limit": f"A whole number from 1 to {MAX_LIMIT}."})
    return int(text)
