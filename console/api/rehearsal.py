"""`?dry_run=true`: the change is made by its own action, looked at, and undone with its transaction.

So a rehearsal passes exactly the checks of the real thing. Nothing is left of it: no row, no audit event, no
notice to any gateway.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.db import transaction

Shown = dict[str, Any] | None


class _Undo(Exception):
    """Ends the transaction of a rehearsal."""


def rehearse(change: Callable[[], tuple[Shown, Shown]]) -> dict[str, Any]:
    """`change` acts and returns the documents before and after; what it raises is raised."""
    before: Shown = None
    after: Shown = None
    try:
        with transaction.atomic():
            before, after = change()
            raise _Undo
    except _Undo:
        return {"dry_run": True, "before": before, "after": after, "changes": changes(before, after)}


_BY_ITSELF = frozenset({"id", "created_at", "updated_at"})


def changes(before: Shown, after: Shown) -> list[dict[str, Any]]:
    """Every field that would differ, by JSON pointer; ids and times that are made anew are left out."""
    old, new = dict(_leaves("", before or {})), dict(_leaves("", after or {}))
    names = sorted(old.keys() | new.keys())
    return [
        {"pointer": name, "before": old.get(name), "after": new.get(name)}
        for name in names
        if old.get(name) != new.get(name)
    ]


def _leaves(prefix: str, document: Mapping[str, Any]) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in document.items():
        if not prefix and name in _BY_ITSELF:
            continue
        at = f"{prefix}/{name}"
        found += _leaves(at, value) if isinstance(value, Mapping) else [(at, value)]
    return found
