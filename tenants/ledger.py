"""Questions to the ledger: sums of a span of days, by what the asker wants them apart.

Days are each tenant's own: the 3rd of March of one tenant is not the 24 hours of another's. A caller passes rows
that are scoped already; nothing here decides who may read them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from django.db.models import Max, QuerySet, Sum

from tenants.models import UsageDay
from tenants.usage_rows import COUNTS

Sums = dict[str, Any]
"""Dimensions by name, and the sum of each of `COUNTS`."""
GROUPS: dict[str, tuple[str, str]] = {
    "day": ("day", ""),
    "tenant": ("tenant_id", "tenant_name"),
    "key": ("key_id", "key_name"),
    "model": ("model", ""),
    "version": ("version_id", ""),
    "class": ("sla_class", ""),
}
"""What sums can be told apart by: the column, and the one that holds its name as it was."""
FILTERS = {name: column for name, (column, _) in GROUPS.items() if name != "day"}


@dataclass(frozen=True, slots=True)
class Span:
    """Days, both included."""

    first: date
    last: date

    @property
    def days(self) -> int:
        return (self.last - self.first).days + 1


def usage_in(span: Span, tenant_ids: Iterable[str] | None = None, **wanted: str) -> QuerySet[UsageDay]:
    """Days of the scope's tenants (or of these among them). `wanted`: names of `FILTERS`, empty ones ignored."""
    rows = UsageDay.objects.filter(day__gte=span.first, day__lte=span.last).order_by()
    if tenant_ids is not None:
        rows = rows.filter(tenant_id__in=list(tenant_ids))
    chosen = {FILTERS[name]: value for name, value in wanted.items() if value}
    return rows.filter(**chosen) if chosen else rows


def sums_by(rows: QuerySet[Any], groups: Sequence[str], limit: int | None = None) -> list[Sums]:
    """One entry per combination of the groups that was used, newest day first, then dearest first.

    An entry holds the groups' columns, the names that belong to them, and the counts.
    """
    columns = [GROUPS[group][0] for group in groups]
    names = [name for group in groups if (name := GROUPS[group][1])]
    # A sum may not carry its column's own name in the same query, so the names differ and are put back.
    sums = {f"sum_{name}": Sum(name) for name in COUNTS} | {f"max_{name}": Max(name) for name in names}
    order = [*(["-day"] if "day" in columns else []), "-sum_cost_micro", "-sum_device_us", *columns]
    found = rows.order_by().values(*columns).annotate(**sums).order_by(*dict.fromkeys(order))
    return [_entry(row, columns, names) for row in (found if limit is None else found[:limit])]


def total_of(sums: Iterable[Sums]) -> Sums:
    listed = list(sums)
    return {name: sum(row[name] for row in listed) for name in COUNTS}


def total(rows: QuerySet[Any]) -> Sums:
    """The same in one statement, over all rows."""
    found = rows.order_by().aggregate(**{f"sum_{name}": Sum(name) for name in COUNTS})
    return {name: found[f"sum_{name}"] or 0 for name in COUNTS}


def _entry(row: dict[str, Any], columns: Sequence[str], names: Sequence[str]) -> Sums:
    counts = {name: row[f"sum_{name}"] or 0 for name in COUNTS}
    return (
        {name: row[name] for name in columns}
        | {name: row[f"max_{name}"] for name in names}
        | {name: int(value) for name, value in counts.items()}
    )
