"""The usage ledger: what gateways counted, added up per minute."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

import structlog
from django.db import connection, transaction

from tenants.models import ApiKey, Tenant
from tenants.scoping import all_tenants

log = structlog.get_logger(__name__)

_DIMENSION = ("tenant_id", "minute", "key_id", "model", "version_id", "sla_class")
_COUNTS = ("requests", "failed", "cancelled", "rows", "tokens", "device_us", "cost_micro")
_COLUMNS = (*_DIMENSION, "tenant_name", "key_name", *_COUNTS)

# Django's bulk_create can overwrite on conflict but not add, and a read-then-write would lose counts when
# two processes report the same minute. Every name below is a constant of this module.
_ADD = f"""
    INSERT INTO tenants_usageminute AS ledger ({", ".join(_COLUMNS)})
    VALUES ({", ".join(["%s"] * len(_COLUMNS))})
    ON CONFLICT ({", ".join(_DIMENSION)}) DO UPDATE
    SET {", ".join(f"{count} = ledger.{count} + excluded.{count}" for count in _COUNTS)}
"""  # noqa: S608
_TOUCH_KEY = (
    "UPDATE tenants_apikey SET last_used_at = greatest(last_used_at, least(%s, now()))"
    " WHERE id = %s AND tenant_id = %s"
)
MAX_COUNT = 1 << 53
"""Of one row of a report: beyond it no gateway counted honestly, and sums in the ledger could overflow."""


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
    def cost_micro(self) -> int: ...


@transaction.atomic
def record_usage(process: str, rows: Iterable[CountedMinute]) -> None:
    """Add the counts of one report to the ledger.

    Adding twice counts twice: the caller applies a report once, and in the transaction that marks it so.
    Raises `django.db.IntegrityError` for counts below zero, `ValueError` for absurd ones; the whole report is
    then left out.
    """
    # One order for everybody: two reports that touch the same rows then wait, and never deadlock.
    ordered = sorted(rows, key=lambda row: [getattr(row, name) for name in _DIMENSION])
    if not ordered:
        return
    _refuse_absurd(ordered)
    tenant_names, key_names = _names(ordered)
    _warn_of_unknown(process, ordered, tenant_names)
    with connection.cursor() as cursor:
        cursor.executemany(_ADD, [_values(row, tenant_names, key_names) for row in ordered])
        cursor.executemany(_TOUCH_KEY, _last_minutes(ordered))


def _names(rows: Sequence[CountedMinute]) -> tuple[dict[str, str], dict[str, str]]:
    """Names of tenants and keys as they are now; an unknown id keeps its row, without a name."""
    tenants = Tenant.objects.filter(pk__in={row.tenant_id for row in rows}).values_list("pk", "name")
    with all_tenants("one report holds rows of many tenants"):
        keys = ApiKey.objects.filter(pk__in={row.key_id for row in rows}).values_list("pk", "name")
        return dict(tenants), dict(keys)


def _values(row: CountedMinute, tenants: dict[str, str], keys: dict[str, str]) -> list[Any]:
    dimension = [row.tenant_id, _time(row.minute), *(getattr(row, name) for name in _DIMENSION[2:])]
    names = [tenants.get(row.tenant_id, ""), keys.get(row.key_id, "")]
    return [*dimension, *names, *(getattr(row, count) for count in _COUNTS)]


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
        for name in _COUNTS:
            if getattr(row, name) > MAX_COUNT:
                raise ValueError(f"{name} of {getattr(row, name)} in one minute")


def _warn_of_unknown(process: str, rows: Sequence[CountedMinute], known: dict[str, str]) -> None:
    unknown = sorted({row.tenant_id for row in rows} - known.keys())
    if unknown:
        log.warning("usage.unknown_tenant", process=process, tenant_ids=unknown)
