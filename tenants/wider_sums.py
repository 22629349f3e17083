"""Sums of the ledger wider than a day and a tenant: weeks of each, and days of the whole platform.

They answer what would read every row of `UsageDay`, are written in the transaction that writes it, and are always
its sums. Weeks are the tenant's own, from Monday on. Everybody adds to the platform's few rows at once, in one
order; whoever takes something out of them excludes the others by an advisory lock.
"""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

from tenants.scoping import all_tenants
from tenants.usage_columns import COUNTS, DIMENSIONS, NAMES, PLATFORM_DIMENSIONS

_LOCK = 0x7467_7577
"""One key of the advisory locks, of 64 bits: the ledger's others have two of 32."""
_WHY = "sums over every tenant are changed"
_DAYS_OF_TENANT = "FROM tenants_usageday WHERE tenant_id = %s AND day >= %s"
_ON_PLATFORM = ", ".join(("day", *PLATFORM_DIMENSIONS))
_TOTALS = ", ".join(f"sum({count}) AS {count}" for count in COUNTS)

# Every name below is one of this module or of `usage_columns`.
_TAKE_OUT = f"""
    UPDATE tenants_usageplatformday AS held SET {", ".join(f"{name} = held.{name} - old.{name}" for name in COUNTS)}
    FROM (SELECT {_ON_PLATFORM}, {_TOTALS} {_DAYS_OF_TENANT} GROUP BY {_ON_PLATFORM}) AS old
    WHERE {" AND ".join(f"held.{name} = old.{name}" for name in ("day", *PLATFORM_DIMENSIONS))}
"""  # noqa: S608
_PUT_BACK = f"""
    INSERT INTO tenants_usageplatformday AS held ({_ON_PLATFORM}, {", ".join(COUNTS)})
    SELECT {_ON_PLATFORM}, {_TOTALS} {_DAYS_OF_TENANT} GROUP BY {_ON_PLATFORM}
    ON CONFLICT ({_ON_PLATFORM})
    DO UPDATE SET {", ".join(f"{name} = held.{name} + excluded.{name}" for name in COUNTS)}
"""
_IS_NOTHING = " AND ".join(f"{count} = 0" for count in COUNTS)
_EMPTIED = f"DELETE FROM tenants_usageplatformday WHERE day >= %s AND {_IS_NOTHING}"  # noqa: S608
_WEEKS = f"""
    INSERT INTO tenants_usageweek (week, {", ".join((*DIMENSIONS, *NAMES, *COUNTS))})
    SELECT date_trunc('week', day)::date, {", ".join(DIMENSIONS)},
        {", ".join(f"max({name})" for name in NAMES)}, {_TOTALS}
    {_DAYS_OF_TENANT} GROUP BY 1, {", ".join(DIMENSIONS)}
"""


def week_of(day: date) -> date:
    """The Monday of its week."""
    return day - timedelta(days=day.weekday())


def share_platform(cursor: Any) -> None:
    """Until the transaction ends nobody takes anything out of the platform's sums."""
    cursor.execute("SELECT pg_advisory_xact_lock_shared(%s)", [_LOCK])


def take_out(cursor: Any, tenant_id: str, first: date) -> None:
    """Before a tenant's days from one on are written anew: without them in the platform's, until `put_back`."""
    with all_tenants(_WHY):
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        cursor.execute(_TAKE_OUT, [tenant_id, first])


def put_back(cursor: Any, tenant_id: str, first: date) -> None:
    """Afterwards, with the same day: the platform's sums and the tenant's weeks say what its days say."""
    with all_tenants(_WHY):
        cursor.execute(_PUT_BACK, [tenant_id, first])
        cursor.execute(_EMPTIED, [first])
    week = week_of(first)
    cursor.execute("DELETE FROM tenants_usageweek WHERE tenant_id = %s AND week >= %s", [tenant_id, week])
    cursor.execute(_WEEKS, [tenant_id, week])
