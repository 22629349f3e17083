"""Sums of the ledger per hour, day and week of each tenant's time zone.

They are written in the transaction that writes the minutes, so that all say the same at any moment, late
rows included. When a tenant's zone changes, `recut` writes its hours and days anew from the minutes; the two
exclude each other by an advisory lock per tenant.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import structlog
from django.db import connection, transaction
from django.db.models import F

from tenants.models import Tenant
from tenants.scoping import tenant_scope
from tenants.usage_columns import COUNTS, DIMENSIONS, NAMES, PLATFORM_DIMENSIONS
from tenants.wider_sums import put_back, share_platform, take_out, week_of
from tenants.zones import UTC_NAME, zone

log = structlog.get_logger(__name__)

_LOCK_SPACE = 0x7467_7573
"""First key of the advisory locks: nobody else uses it."""
_SUMS = ", ".join(f"{count} = held.{count} + excluded.{count}" for count in COUNTS)
_REST = ", ".join((*DIMENSIONS, *NAMES, *COUNTS))
_QUARTER = timedelta(minutes=15)
"""No clock of today is set by anything else."""
_TOTALS = ", ".join(f"sum({count})" for count in COUNTS)
_DAY_SUMS = f"SELECT day, {_TOTALS} FROM tenants_usageday WHERE tenant_id = %s AND day >= %s GROUP BY 1"  # noqa: S608
_MINUTE_SUMS = (
    f"SELECT width_bucket(minute, %s::timestamptz[]), {_TOTALS} FROM tenants_usageminute"  # noqa: S608
    " WHERE tenant_id = %s AND minute >= %s GROUP BY 1"
)
Row = Mapping[str, Any]


def _add(
    table: str, period: str, dimensions: Sequence[str] = DIMENSIONS, names: Sequence[str] = NAMES
) -> str:
    columns = (period, *dimensions, *names, *COUNTS)
    return f"""
        INSERT INTO {table} AS held ({", ".join(columns)}) VALUES ({", ".join(["%s"] * len(columns))})
        ON CONFLICT ({period}, {", ".join(dimensions)}) DO UPDATE SET {_SUMS}
    """  # noqa: S608 - constants of this module


def _cut(table: str, period: str, kind: str) -> str:
    """Minutes of one tenant since a moment, summed by the edges between periods."""
    names = ", ".join(f"max({name})" for name in NAMES)
    return f"""
        INSERT INTO {table} AS held ({period}, {_REST})
        SELECT (%s::{kind}[])[width_bucket(minute, %s::timestamptz[])], {", ".join(DIMENSIONS)}, {names}, {_TOTALS}
        FROM tenants_usageminute WHERE tenant_id = %s AND minute >= %s
        GROUP BY 1, {", ".join(DIMENSIONS)}
        ON CONFLICT ({period}, {", ".join(DIMENSIONS)}) DO UPDATE SET {_SUMS}
    """  # noqa: S608 - constants of this module


_ADD_HOUR, _ADD_DAY = _add("tenants_usagehour", "hour"), _add("tenants_usageday", "day")
_ADD_WEEK = _add("tenants_usageweek", "week")
_ADD_PLATFORM_DAY = _add("tenants_usageplatformday", "day", PLATFORM_DIMENSIONS, ())
_CUT_HOURS = _cut("tenants_usagehour", "hour", "timestamptz")
_CUT_DAYS = _cut("tenants_usageday", "day", "date")


# ---------------------------------------------------------------- periods, pure


def hour_of(moment: datetime, place: ZoneInfo) -> datetime:
    """When the hour of the place's clock began in which the moment lies, in UTC.

    Where an offset is no whole hour, hours begin at a quarter or half past in UTC.
    """
    local = moment.astimezone(place)
    return (moment - timedelta(minutes=local.minute, seconds=local.second)).astimezone(UTC)


def day_of(moment: datetime, place: ZoneInfo) -> date:
    return moment.astimezone(place).date()


def day_start(day: date, place: ZoneInfo) -> datetime:
    """The first moment of a day, in UTC; some days begin at one o'clock, some have 23 or 25 hours."""
    # A midnight that a clock skips, zoneinfo takes for the moment at which it is set; of two the first counts.
    return datetime.combine(day, time.min, place).astimezone(UTC)


def hours_between(first: datetime, last: datetime, place: ZoneInfo) -> tuple[list[datetime], list[datetime]]:
    """Hours of the place's clock from one moment to another: where each is entered, and when it began.

    The two differ where a clock is set by less than an hour.
    """
    edges, hours = [hour_of(first, place)], [hour_of(first, place)]
    moment = edges[0]
    while moment <= last:
        begun = hour_of(moment, place)
        if begun != hours[-1]:
            edges.append(moment)
            hours.append(begun)
        moment += _QUARTER
    return edges, hours


def days_between(first: date, last: date, place: ZoneInfo) -> tuple[list[datetime], list[date]]:
    """Days from one to another, both included: where each begins, and its date."""
    days = [first + timedelta(days=number) for number in range((last - first).days + 1)]
    return [day_start(day, place) for day in days], days


# ---------------------------------------------------------------- as usage comes in


def hold_zones(tenant_ids: Collection[str]) -> dict[str, ZoneInfo]:
    """Where each tenant's days begin, held against a change until the transaction ends."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_advisory_xact_lock_shared(%s, hashtext(id)) FROM unnest(%s::text[]) AS id",
            [_LOCK_SPACE, sorted(tenant_ids)],
        )
    found = dict(Tenant.objects.filter(pk__in=tenant_ids).values_list("pk", "usage_zone"))
    return {tenant_id: zone(found.get(tenant_id, UTC_NAME)) for tenant_id in tenant_ids}


def hold_ledger(cursor: Any, tenant_id: str) -> None:
    """Nothing is added to the tenant's ledger until the transaction ends."""
    cursor.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", [_LOCK_SPACE, tenant_id])


def add_rollups(cursor: Any, minutes: Iterable[Row], zones: Mapping[str, ZoneInfo]) -> None:
    """Add ledger rows of minutes to their hours, days and weeks, and to the platform's days."""
    listed = list(minutes)
    days = [day_of(row["minute"], zones[row["tenant_id"]]) for row in listed]
    hours = [hour_of(row["minute"], zones[row["tenant_id"]]) for row in listed]
    cursor.executemany(_ADD_HOUR, _summed(listed, hours))
    cursor.executemany(_ADD_DAY, _summed(listed, days))
    cursor.executemany(_ADD_WEEK, _summed(listed, [week_of(day) for day in days]))
    share_platform(cursor)
    cursor.executemany(_ADD_PLATFORM_DAY, _summed(listed, days, PLATFORM_DIMENSIONS, ()))


def _summed(
    rows: Sequence[Row],
    periods: Sequence[Any],
    dimensions: Sequence[str] = DIMENSIONS,
    names: Sequence[str] = NAMES,
) -> list[list[Any]]:
    """One list of values per period and dimension, in an order that is the same for everybody."""
    sums: dict[tuple[Any, ...], list[Any]] = {}
    for row, period in zip(rows, periods, strict=True):
        key = (period, *(row[name] for name in dimensions))
        held = sums.setdefault(key, [*(row[name] for name in names), *([0] * len(COUNTS))])
        for place, count in enumerate(COUNTS, len(names)):
            held[place] += row[count]
    return [[*key, *sums[key]] for key in sorted(sums)]


# ---------------------------------------------------------------- when a zone changes


def recut_step(now: datetime) -> list[str]:
    """Cut the days of tenants anew whose zone changed; returns their ids. One transaction each."""
    waiting = Tenant.objects.exclude(usage_zone=F("time_zone")).order_by("pk").values_list("pk", flat=True)
    return [tenant_id for tenant_id in waiting if recut(tenant_id)]


@transaction.atomic
def recut(tenant_id: str) -> bool:
    """Write hours and days anew in the tenant's time zone; False when they are already.

    Days older than the minutes that are kept stay as they were cut. No unit is lost or counted twice.
    """
    with tenant_scope(tenant_id), connection.cursor() as cursor:
        hold_ledger(cursor, tenant_id)
        tenant = Tenant.objects.filter(pk=tenant_id).exclude(usage_zone=F("time_zone")).first()
        if tenant is None:
            return False
        span = _span(cursor, tenant)
        if span is not None:
            _recut(cursor, tenant, *span)
    # Not the whole row: somebody may be changing the tenant meanwhile.
    Tenant.objects.filter(pk=tenant_id).update(usage_zone=tenant.time_zone)
    log.info("usage.recut", tenant=tenant_id, zone=tenant.time_zone)
    return True


def _span(cursor: Any, tenant: Tenant) -> tuple[date, datetime, datetime] | None:
    """The first day from which on all can be cut anew, with its start, and the newest minute.

    None without minutes. A day can be cut anew when every minute that its sums were made of is still there.
    """
    cursor.execute(
        "SELECT min(minute), max(minute) FROM tenants_usageminute WHERE tenant_id = %s", [tenant.pk]
    )
    oldest, newest = cursor.fetchone()
    if oldest is None:
        return None
    place = zone(tenant.usage_zone)
    edges, days = days_between(day_of(oldest, place), day_of(newest, place), place)
    by_day = _sums(cursor, _DAY_SUMS, tenant.pk, days[0])
    by_minute = _sums(cursor, _MINUTE_SUMS, edges, tenant.pk, edges[0])
    first = days[0]
    for number, day in enumerate(days, 1):
        if by_day.get(day) != by_minute.get(number):
            first = day + timedelta(days=1)
    return first, day_start(first, place), newest


def _sums(cursor: Any, sql: str, *params: Any) -> dict[Any, tuple[int, ...]]:
    cursor.execute(sql, params)
    return {period: tuple(sums) for period, *sums in cursor.fetchall()}


def _recut(cursor: Any, tenant: Tenant, day: date, start: datetime, newest: datetime) -> None:
    # Where the new zone is west of the old one its days begin earlier, beyond the date line by two.
    first = min(day, day_of(start, zone(tenant.time_zone)))
    take_out(cursor, tenant.pk, first)
    cursor.execute("DELETE FROM tenants_usageday WHERE tenant_id = %s AND day >= %s", [tenant.pk, day])
    cursor.execute("DELETE FROM tenants_usagehour WHERE tenant_id = %s AND hour >= %s", [tenant.pk, start])
    if start <= newest:
        _cut_anew(cursor, tenant, start, newest)
    put_back(cursor, tenant.pk, first)


def _cut_anew(cursor: Any, tenant: Tenant, start: datetime, newest: datetime) -> None:
    place = zone(tenant.time_zone)
    edges, days = days_between(day_of(start, place), day_of(newest, place), place)
    cursor.execute(_CUT_DAYS, [days, edges, tenant.pk, start])
    edges, hours = hours_between(start, newest, place)
    cursor.execute(_CUT_HOURS, [hours, edges, tenant.pk, start])
