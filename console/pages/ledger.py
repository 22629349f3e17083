"""Sums over the usage ledger, for the pages that show them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db.models import QuerySet, Sum

from tenants.models import UsageMinute

COUNTS = ("requests", "failed", "cancelled", "rows", "tokens", "device_us", "cost_micro")
Sums = dict[str, Any]
"""Dimensions by name, and the sum of each of `COUNTS`."""


def sums_by(rows: QuerySet[UsageMinute], *dimensions: str) -> list[Sums]:
    """One entry per combination of the dimensions, in their order; `-day` sorts that one downwards."""
    # A sum may not carry its column's own name in the same query, so the names differ and are put back.
    sums = {f"sum_{name}": Sum(name) for name in COUNTS}
    names = [dimension.removeprefix("-") for dimension in dimensions]
    found = rows.order_by(*dimensions).values(*names).annotate(**sums)
    return [{**{name: row[name] for name in names}, **_counts(row)} for row in found]


def total_of(sums: Iterable[Sums]) -> Sums:
    listed = list(sums)
    return {name: sum(row[name] for row in listed) for name in COUNTS}


def _counts(row: dict[str, Any]) -> dict[str, int]:
    return {name: row[f"sum_{name}"] or 0 for name in COUNTS}
