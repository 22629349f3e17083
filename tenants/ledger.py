"""Questions to the ledger: sums of a span of days, by what the asker wants them apart.

Days are each tenant's own: the 3rd of March of one tenant is not the 24 hours of another's. A caller passes rows
that are scoped already; nothing here decides who may read them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from django.core.exceptions import EmptyResultSet
from django.db import connection, transaction
from django.db.models import Max, QuerySet, Sum

from tenants.models import UsageDay
from tenants.usage_columns import COUNTS

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


def days_and_sums(
    rows: QuerySet[UsageDay], groups: Sequence[str], limit: int
) -> tuple[list[Sums], list[Sums]]:
    """`sums_by` day and `sums_by` the groups (some other than days alone) out of one reading of the rows.

    A large platform's month is hundreds of thousands of rows: they are read once.
    """
    columns = [GROUPS[group][0] for group in groups]
    names = [name for group in groups if (name := GROUPS[group][1])]
    apart = next(column for column in columns if column != "day")
    try:
        inner, params = rows.order_by().values(*{"day", *columns, *names, *COUNTS}).query.sql_with_params()
    except EmptyResultSet:
        return [], []
    with transaction.atomic(), connection.cursor() as cursor:
        # With 4 MB the sums of ten thousand keys go through a file.
        cursor.execute("SET LOCAL work_mem = '64MB'")
        cursor.execute(_together(inner, columns, names, apart), [*params, limit])
        described = [column.name for column in cursor.description or ()]
        found = [dict(zip(described, row, strict=True)) for row in cursor.fetchall()]
    days = [_entry(row, ["day"], []) for row in found if row["is_day"]]
    return days, [_entry(row, columns, names) for row in found if not row["is_day"]]


def _together(inner: str, columns: Sequence[str], names: Sequence[str], apart: str) -> str:
    """Every name is one of this module's; what was asked is among the parameters."""
    sums = ", ".join(f"sum({name}) AS sum_{name}" for name in COUNTS)
    # Any one name will do where several were borne: bytes are compared in a fifth of the time of words.
    texts = "".join(f', max({name} COLLATE "C") AS max_{name}' for name in names)
    held = ", ".join(dict.fromkeys(["day", *columns]))
    rank = ", ".join([*(["day DESC"] if "day" in columns else []), "sum_cost_micro DESC", *columns])
    return f"""
        WITH summed AS (
            SELECT {held}, grouping({apart}) = 1 AS is_day, {sums}{texts} FROM ({inner}) AS asked
            GROUP BY GROUPING SETS ((day), ({", ".join(columns)}))
        )
        (SELECT * FROM summed WHERE is_day ORDER BY day DESC)
        UNION ALL
        (SELECT * FROM summed WHERE NOT is_day ORDER BY {rank} LIMIT %s)
    """  # noqa: S608


def total_of(sums: Iterable[Sums]) -> Sums:
    listed = list(sums)
    return {name: sum(row[name] for row in listed) for name in COUNTS}


def total(rows: QuerySet[Any]) -> Sums:
    """The same in one statement, over all rows."""
    found = rows.order_by().aggregate(**{f"sum_{name}": Sum(name) for name in COUNTS})
    return {name: int(found[f"sum_{name}"] or 0) for name in COUNTS}


def cost_by_day(rows: QuerySet[UsageDay]) -> dict[date, int]:
    """Micro-units; days without usage are absent."""
    return dict(rows.values("day").annotate(cost=Sum("cost_micro")).values_list("day", "cost"))


def _entry(row: dict[str, Any], columns: Sequence[str], names: Sequence[str]) -> Sums:
    counts = {name: row[f"sum_{name}"] or 0 for name in COUNTS}
    return (
        {name: row[name] for name in columns}
        | {name: row[f"max_{name}"] for name in names}
        | {name: int(value) for name, value in counts.items()}
    )
