"""Whether the ledger's minutes, hours and days say the same, as far back as each is kept."""

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
from tenants.usage_columns import COUNTS
from tenants.zones import zone

_TOTALS = ", ".join(f"sum({count})" for count in COUNTS)
_DAYS = f"SELECT day, {_TOTALS} FROM tenants_usageday WHERE tenant_id = %s AND day >= %s GROUP BY 1"  # noqa: S608
_FINE = """
    SELECT width_bucket({period}, %s::timestamptz[]), {totals} FROM {table}
    WHERE tenant_id = %s AND {period} >= %s GROUP BY 1
"""
_PERIODS = {"minute": "tenants_usageminute", "hour": "tenants_usagehour"}


@dataclass(frozen=True, slots=True)
class Disagreement:
    """One tenant's day whose sums differ. `said` by the finer rows, `summed` by the day."""

    tenant_id: str
    day: date
    period: str
    said: tuple[int, ...]
    summed: tuple[int, ...]


def disagreements(now: datetime) -> Iterator[Disagreement]:
    """Every day of every tenant whose hours or minutes are all kept, and sum to something else than the day."""
    with all_tenants("sums of every tenant are compared"):
        for tenant in Tenant.objects.order_by("slug"):
            yield from _of_tenant(tenant, now)


@transaction.atomic
def _of_tenant(tenant: Tenant, now: datetime) -> list[Disagreement]:
    with connection.cursor() as cursor:
        hold_ledger(cursor, tenant.pk)
    tenant.refresh_from_db(fields=["usage_zone"])  # behind the lock nobody cuts it anew
    return [each for period in _PERIODS for each in _compare(tenant, period, now)]


def _compare(tenant: Tenant, period: str, now: datetime) -> Iterator[Disagreement]:
    place = zone(tenant.usage_zone)
    first = day_of(_since(period, now), place) + timedelta(days=1)
    edges, days = days_between(first, day_of(now.astimezone(UTC), place) + timedelta(days=1), place)
    by_day = _sums(_DAYS, tenant.pk, first)
    fine = _FINE.format(period=period, totals=_TOTALS, table=_PERIODS[period])
    by_bucket = _sums(fine, edges, tenant.pk, edges[0])
    nothing = (0,) * len(COUNTS)
    for bucket, day in enumerate(days, 1):
        said, summed = by_bucket.get(bucket, nothing), by_day.get(day, nothing)
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


def _sums(sql: str, *params: Any) -> dict[object, tuple[int, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return {period: tuple(int(each) for each in sums) for period, *sums in cursor.fetchall()}
