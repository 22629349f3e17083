"""Whether the ledger's sums of every width say the same, as far back as each is kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from django.db import connection, transaction

from tenants.models import Tenant
from tenants.retention import kept_since
from tenants.rollups import day_of, days_between, hold_ledger
from tenants.scoping import all_tenants
from tenants.usage_columns import COUNTS, PLATFORM_DIMENSIONS
from tenants.zones import zone

_TOTALS = ", ".join(f"sum({count})" for count in COUNTS)
_DAYS = f"SELECT day, {_TOTALS} FROM tenants_usageday WHERE tenant_id = %s AND day >= %s GROUP BY 1"  # noqa: S608
_FINE = """
    SELECT width_bucket({period}, %s::timestamptz[]), {totals} FROM {table}
    WHERE tenant_id = %s AND {period} >= %s GROUP BY 1
"""
_WEEKS = f"SELECT week, {_TOTALS} FROM tenants_usageweek WHERE tenant_id = %s GROUP BY 1"  # noqa: S608
_DAYS_BY_WEEK = (
    f"SELECT date_trunc('week', day)::date, {_TOTALS} FROM tenants_usageday"  # noqa: S608
    " WHERE tenant_id = %s GROUP BY 1"
)
_KINDS = ", ".join(("day", *PLATFORM_DIMENSIONS))
_SUMMED = ", ".join(f"coalesce(sum({count}), 0) AS {count}" for count in COUNTS)
# One statement sees both as one moment left them.
_PLATFORM = f"""
    SELECT day, {", ".join(f"coalesce(said.{count}, 0)" for count in COUNTS)},
        {", ".join(f"coalesce(held.{count}, 0)" for count in COUNTS)}
    FROM (SELECT {_KINDS}, {_SUMMED} FROM tenants_usageday GROUP BY {_KINDS}) AS said
    FULL JOIN tenants_usageplatformday AS held USING ({_KINDS})
    WHERE ({", ".join(f"coalesce(said.{count}, 0)" for count in COUNTS)})
        <> ({", ".join(f"coalesce(held.{count}, 0)::numeric" for count in COUNTS)})
    ORDER BY {_KINDS}
"""  # noqa: S608
_NOTHING = (0,) * len(COUNTS)
_PERIODS = {"minute": "tenants_usageminute", "hour": "tenants_usagehour"}


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A day (of a tenant; of the platform where `tenant_id` is empty) or a week whose sums differ.

    `said` by the finer rows, `summed` by the wider one. `period` is the finer of the two.
    """

    tenant_id: str
    day: date
    period: str
    said: tuple[int, ...]
    summed: tuple[int, ...]


def disagreements(now: datetime) -> Iterator[Disagreement]:
    """Every day of every tenant whose hours or minutes are all kept, and sum to something else than the day.

    And every week, and every day of the platform, that is not the sum of its tenants' days.
    """
    with all_tenants("sums of every tenant are compared"):
        for tenant in Tenant.objects.order_by("slug"):
            yield from _of_tenant(tenant, now)
        yield from _of_platform()


@transaction.atomic
def _of_tenant(tenant: Tenant, now: datetime) -> list[Disagreement]:
    with connection.cursor() as cursor:
        hold_ledger(cursor, tenant.pk)
    tenant.refresh_from_db(fields=["usage_zone"])  # behind the lock nobody cuts it anew
    return [
        *(each for period in _PERIODS for each in _compare(tenant, period, now)),
        *_compare_weeks(tenant),
    ]


def _compare_weeks(tenant: Tenant) -> Iterator[Disagreement]:
    by_day, by_week = _sums(_DAYS_BY_WEEK, tenant.pk), _sums(_WEEKS, tenant.pk)
    for week in sorted(by_day.keys() | by_week.keys()):
        said, summed = by_day.get(week, _NOTHING), by_week.get(week, _NOTHING)
        if said != summed:
            yield Disagreement(tenant.pk, week, "day", said, summed)


def _of_platform() -> Iterator[Disagreement]:
    with connection.cursor() as cursor:
        cursor.execute(_PLATFORM)
        for day, *counts in cursor.fetchall():
            said, summed = (tuple(int(each) for each in half) for half in _halves(counts))
            yield Disagreement("", day, "day", said, summed)


def _halves(counts: list[Any]) -> tuple[list[Any], list[Any]]:
    return counts[: len(COUNTS)], counts[len(COUNTS) :]


def _compare(tenant: Tenant, period: str, now: datetime) -> Iterator[Disagreement]:
    place = zone(tenant.usage_zone)
    first = day_of(_since(period, now), place) + timedelta(days=1)
    edges, days = days_between(first, day_of(now.astimezone(UTC), place) + timedelta(days=1), place)
    by_day = _sums(_DAYS, tenant.pk, first)
    fine = _FINE.format(period=period, totals=_TOTALS, table=_PERIODS[period])
    by_bucket = _sums(fine, edges, tenant.pk, edges[0])
    for bucket, day in enumerate(days, 1):
        said, summed = by_bucket.get(bucket, _NOTHING), by_day.get(day, _NOTHING)
        if said != summed:
            yield Disagreement(tenant.pk, day, period, said, summed)


def _since(period: str, now: datetime) -> datetime:
    """From when on all rows are kept: where the setting was raised, no earlier than the oldest that is there.

    The day in which that moment lies may lack some, and is not compared.
    """
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT min({period}) FROM {_PERIODS[period]}")  # noqa: S608
        oldest = cursor.fetchone()[0]
    since = kept_since(period, now)
    return max(since, oldest) if oldest else since


def _sums(sql: str, *params: Any) -> dict[Any, tuple[int, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return {period: tuple(int(each) for each in sums) for period, *sums in cursor.fetchall()}
