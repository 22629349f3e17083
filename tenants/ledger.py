"""Questions to the ledger: sums of a span of days, by what the asker wants them apart.

Days are each tenant's own: the 3rd of March of one tenant is not the 24 hours of another's. Nothing here decides
who may read what: the scope does, and the tenants that are asked for. The widest sums that can answer are read:
the platform's days, else whole weeks and the days at both ends, else days. All of them say the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

from django.core.exceptions import EmptyResultSet
from django.db import connection
from django.db.models import Q, QuerySet

from tenants.models import UsageDay, UsagePlatformDay, UsageWeek
from tenants.scoping import current_scope
from tenants.usage_columns import COUNTS, PLATFORM_DIMENSIONS
from tenants.wider_sums import week_of

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


@dataclass(frozen=True, slots=True)
class Asked:
    """Which usage: of the scope's tenants, or of these among them. `wanted`: by names of `FILTERS`."""

    span: Span
    tenant_ids: Sequence[str] | None = None
    wanted: Mapping[str, str] = field(default_factory=dict)

    def days(self) -> QuerySet[UsageDay]:
        """At the finest the ledger has for days."""
        rows = UsageDay.objects.filter(day__gte=self.span.first, day__lte=self.span.last)
        return self._narrowed(rows).order_by()

    def rows(self, columns: Iterable[str]) -> list[QuerySet[Any]]:
        """The fewest rows that say these columns apart; together they are `days`, to the unit."""
        needed = {*columns, *(FILTERS[name] for name in self._set())}
        if self._is_of_platform() and needed <= {"day", *PLATFORM_DIMENSIONS}:
            days = UsagePlatformDay.objects.filter(day__gte=self.span.first, day__lte=self.span.last)
            return [self._narrowed(days).order_by()]
        monday, end = self._whole_weeks()
        if "day" in needed or end <= monday:
            return [self.days()]
        weeks = self._narrowed(UsageWeek.objects.filter(week__gte=monday, week__lt=end)).order_by()
        return [weeks, self.days().filter(Q(day__lt=monday) | Q(day__gte=end))]

    def _is_of_platform(self) -> bool:
        return self.tenant_ids is None and current_scope().tenant_ids is None

    def _whole_weeks(self) -> tuple[date, date]:
        """The first Monday, and the one after the last whole week."""
        return week_of(self.span.first + timedelta(days=6)), week_of(self.span.last + timedelta(days=1))

    def _narrowed(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        if self.tenant_ids is not None:
            rows = rows.filter(tenant_id__in=list(self.tenant_ids))
        return rows.filter(**{FILTERS[name]: value for name, value in self._set().items()})

    def _set(self) -> dict[str, str]:
        return {name: value for name, value in self.wanted.items() if value}


def sums_by(asked: Asked, groups: Sequence[str], limit: int | None = None) -> list[Sums]:
    """One entry per combination of the groups that was used, newest day first, then dearest first.

    An entry holds the groups' columns, the names that belong to them, and the counts.
    """
    columns = [GROUPS[group][0] for group in groups]
    names = [name for group in groups if (name := GROUPS[group][1])]
    inner, params = _together(asked.rows(columns), [*columns, *names, *COUNTS])
    if not inner:
        return []
    with connection.cursor() as cursor:
        cursor.execute(_grouped(inner, columns, names), [*params, limit])
        described = [column.name for column in cursor.description or ()]
        found = [dict(zip(described, row, strict=True)) for row in cursor.fetchall()]
    return [_entry(row, columns, names) for row in found]


def _together(parts: Iterable[QuerySet[Any]], columns: Sequence[str]) -> tuple[str, list[Any]]:
    """The parts as one; empty when none can hold a row."""
    texts: list[str] = []
    params: list[Any] = []
    for rows in parts:
        try:
            text, values = rows.values_list(*columns).query.sql_with_params()
        except EmptyResultSet:
            continue
        texts.append(text)
        params += values
    return " UNION ALL ".join(f"({text})" for text in texts), params


def _grouped(inner: str, columns: Sequence[str], names: Sequence[str]) -> str:
    """Every name is one of this module's; what was asked is among the parameters."""
    sums = ", ".join(f"sum({name}) AS sum_{name}" for name in COUNTS)
    # Any one name will do where several were borne: bytes are compared in a fifth of the time of words.
    texts = "".join(f', max({name} COLLATE "C") AS max_{name}' for name in names)
    rank = [
        *(["day DESC"] if "day" in columns else []),
        "sum_cost_micro DESC",
        "sum_device_us DESC",
        *columns,
    ]
    return f"""
        SELECT {", ".join(columns)}, {sums}{texts} FROM ({inner}) AS asked
        GROUP BY {", ".join(columns)} ORDER BY {", ".join(rank)} LIMIT %s
    """  # noqa: S608


def total_of(sums: Iterable[Sums]) -> Sums:
    listed = list(sums)
    return {name: sum(row[name] for row in listed) for name in COUNTS}


def total(asked: Asked) -> Sums:
    """The same of everything that was asked."""
    return total_of(sums_by(asked, ("model",)))


def cost_by_day(asked: Asked) -> dict[date, int]:
    """Micro-units; days without usage are absent."""
    return costs_of(sums_by(asked, ("day",)))


def costs_of(days: Iterable[Sums]) -> dict[date, int]:
    return {row["day"]: row["cost_micro"] for row in days}


def _entry(row: dict[str, Any], columns: Sequence[str], names: Sequence[str]) -> Sums:
    counts = {name: row[f"sum_{name}"] or 0 for name in COUNTS}
    return (
        {name: row[name] for name in columns}
        | {name: row[f"max_{name}"] for name in names}
        | {name: int(value) for name, value in counts.items()}
    )
