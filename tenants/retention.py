"""How long the ledger keeps its finer sums. Days are kept for ever."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db import connection

from tenants.scoping import all_tenants

BATCH_ROWS = 20_000
"""Of one statement: nobody waits long for its locks, and what one run leaves the next one takes."""
BATCHES = 50

_DELETE = """
    DELETE FROM {table} WHERE id IN (SELECT id FROM {table} WHERE {period} < %s ORDER BY {period} LIMIT %s)
"""
_MINUTES = _DELETE.format(table="tenants_usageminute", period="minute")
_HOURS = _DELETE.format(table="tenants_usagehour", period="hour")


def kept_since(period: str, now: datetime) -> datetime:
    """The moment from which on every row of a `period` (`minute` or `hour`) is still there."""
    days = settings.USAGE_MINUTES_KEPT_DAYS if period == "minute" else settings.USAGE_HOURS_KEPT_DAYS
    return _cutoff(now, days)


def prune_usage(now: datetime) -> dict[str, int]:
    """Delete minutes and hours that are older than the settings keep them; returns how many of each."""
    return {
        "usage_minutes": _delete(_MINUTES, kept_since("minute", now)),
        "usage_hours": _delete(_HOURS, kept_since("hour", now)),
    }


def _cutoff(now: datetime, days: int) -> datetime:
    """The start of a day in UTC: days are cut off whole, or nearly."""
    return now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=days)


def _delete(sql: str, before: datetime) -> int:
    deleted = 0
    with all_tenants("minutes of every tenant grow old"), connection.cursor() as cursor:
        for _ in range(BATCHES):
            cursor.execute(sql, [before, BATCH_ROWS])
            deleted += cursor.rowcount
            if cursor.rowcount < BATCH_ROWS:
                break
    return deleted
