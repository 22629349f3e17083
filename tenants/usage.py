"""The usage ledger: what gateways counted, added up per minute, hour and day in one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

import structlog
from django.db import connection, transaction

from tenants.models import ApiKey, Tenant
from tenants.rollups import add_rollups, hold_zones
from tenants.scoping import all_tenants
from tenants.usage_columns import COUNTS, DIMENSIONS, NAMES

log = structlog.get_logger(__name__)

_KEY = ("minute", *DIMENSIONS)
_COLUMNS = (*_KEY, *NAMES, *COUNTS)

# Django's bulk_create can overwrite on conflict but not add, and a read-then-write would lose counts when
# two processes report the same minute. Every name below is a constant of this module.
_ADD = f"""
    INSERT INTO tenants_usageminute AS ledger ({", ".join(_COLUMNS)})
    VALUES ({", ".join(["%s"] * len(_COLUMNS))})
    ON CONFLICT ({", ".join(_KEY)}) DO UPDATE
    SET {", ".join(f"{count} = ledger.{count} + excluded.{count}" for count in COUNTS)}
"""  # noqa: S608
_TOUCH_KEY = (
    "UPDATE tenants_apikey SET last_used_at = greatest(last_used_at, least(%s, now()))"
    " WHERE id = %s AND tenant_id = %s"
)
MAX_COUNT = 1 << 53
"""Of one row of a report: beyond it no gateway counted honestly, and sums in the ledger could overflow."""
_WHY = "one report holds rows of many tenants"


class CountedMinute(Protocol):
    """One row as a gateway reports it; `serving.contract.UsageRow` is one. `minute` is in Unix seconds."""

    @property
    def minute(self) -> int: ...
    @property
    def tenant_id(self) -> str: ...
    @property
    def key_id(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def version_id(self) -> str: ...
    @property
    def sla_class(self) -> str: ...
    @property
    def requests(self) -> int: ...
    @property
    def failed(self) -> int: ...
    @property
    def cancelled(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def tokens(self) -> int: ...
    @property
    def device_us(self) -> int: ...
    @property
    def cancelled_us(self) -> int: ...
    @property
    def cost_micro(self) -> int: ...


@transaction.atomic
def record_usage(process: str, rows: Iterable[CountedMinute]) -> None:
    """Add the counts of one report to the ledger.

    Adding twice counts twice: the caller applies a report once, and in the transaction that marks it so.
    Raises `django.db.IntegrityError` for counts below zero, `ValueError` for absurd ones; the whole report is
    then left out.
    """
    # One order for everybody: two reports that touch the same rows then wait, and never deadlock.
    ordered = sorted(rows, key=lambda row: [getattr(row, name) for name in _KEY])
    if not ordered:
        return
    _refuse_absurd(ordered)
    zones = hold_zones({row.tenant_id for row in ordered})
    tenant_names, key_names = _names(ordered)
    _warn_of_unknown(process, ordered, tenant_names)
    values = [_values(row, tenant_names, key_names) for row in ordered]
    with all_tenants(_WHY), connection.cursor() as cursor:
        cursor.executemany(_ADD, [[minute[name] for name in _COLUMNS] for minute in values])
        add_rollups(cursor, values, zones)
        cursor.executemany(_TOUCH_KEY, _last_minutes(ordered))


def _names(rows: Sequence[CountedMinute]) -> tuple[dict[str, str], dict[str, str]]:
    """Names of tenants and keys as they are now; an unknown id keeps its row, without a name."""
    tenants = Tenant.objects.filter(pk__in={row.tenant_id for row in rows}).values_list("pk", "name")
    with all_tenants(_WHY):
        keys = ApiKey.objects.filter(pk__in={row.key_id for row in rows}).values_list("pk", "name")
        return dict(tenants), dict(keys)


def _values(row: CountedMinute, tenants: dict[str, str], keys: dict[str, str]) -> dict[str, Any]:
    copied = {name: getattr(row, name) for name in (*DIMENSIONS, *COUNTS)}
    names = {"tenant_name": tenants.get(row.tenant_id, ""), "key_name": keys.get(row.key_id, "")}
    return {"minute": _time(row.minute), **copied, **names}


def _last_minutes(rows: Sequence[CountedMinute]) -> list[tuple[datetime, str, str]]:
    latest: dict[tuple[str, str], int] = {}
    for row in rows:
        key = (row.key_id, row.tenant_id)
        latest[key] = max(row.minute, latest.get(key, 0))
    return [(_time(latest[key]), *key) for key in sorted(latest)]


def _time(minute: int) -> datetime:
    return datetime.fromtimestamp(minute, UTC)


def _refuse_absurd(rows: Sequence[CountedMinute]) -> None:
    for row in rows:
        for name in COUNTS:
            if getattr(row, name) > MAX_COUNT:
                raise ValueError(f"{name} of {getattr(row, name)} in one minute")


def _warn_of_unknown(process: str, rows: Sequence[CountedMinute], known: dict[str, str]) -> None:
    unknown = sorted({row.tenant_id for row in rows} - known.keys())
    if unknown:
        log.warning("usage.unknown_tenant", process=process, tenant_ids=unknown)
