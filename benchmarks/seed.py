"""Fills a database with a platform's worth of rows, by COPY: tenants, keys, usage, and an audit trail.

    TIDEGATE_STATE_DIR=var python -m benchmarks.seed                        beside a running `manage.py up`
    python -m benchmarks.seed --tenants 10 --keys 100 --usage 10000 --audit 0

It adds to what is there; nothing it writes is published, so gateways learn of it with the controller's next
reconciliation. Never for a database that somebody needs.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import django
import psycopg

from benchmarks import seed_rows
from benchmarks.seed_rows import Row, Shape

AUDIT_BATCH = 50_000
"""Events of one transaction: they are chained as it commits."""


def main(arguments: Sequence[str] = sys.argv[1:]) -> None:
    options = _options(arguments)
    join_platform()
    shape = Shape(options.tenants, options.keys, options.days)
    draw = random.Random(options.seed)
    # Whoever owns the tables, not the role of the application: rows of every tenant are written at once.
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        connection.execute("SELECT set_config('tidegate.tenants', '*', false)")
        seed(connection, shape, usage=options.usage, audit=options.audit, draw=draw)


def seed(
    connection: psycopg.Connection[Any], shape: Shape, *, usage: int, audit: int, draw: random.Random
) -> None:
    """Tenants, keys, so many usage rows and so many audit events; hours and days are summed from the minutes."""
    now = datetime.now(UTC)
    tenants = seed_rows.tenants(shape, now, draw)
    keys = seed_rows.keys(shape, tenants, now, draw)
    _timed("tenants", connection, "tenants_tenant", seed_rows.TENANT_COLUMNS, (row.values for row in tenants))
    _timed("keys", connection, "tenants_apikey", seed_rows.KEY_COLUMNS, (row.values for row in keys))
    quotas = seed_rows.quotas(keys, now, draw)
    _timed("quotas", connection, "control_quota", seed_rows.QUOTA_COLUMNS, quotas)
    rows = seed_rows.usage(shape, keys, usage, now, draw)
    _timed("usage", connection, "tenants_usageminute", seed_rows.USAGE_COLUMNS, rows)
    _roll_up(connection, [tenant.id for tenant in tenants])
    for start in range(0, audit, AUDIT_BATCH):
        events = seed_rows.events(tenants, min(AUDIT_BATCH, audit - start), now, draw)
        _timed(f"audit {start:,}", connection, "tenants_auditevent", seed_rows.EVENT_COLUMNS, events)
    connection.execute("VACUUM (ANALYZE)")  # as autovacuum would have, long before tables are this large


def _timed(
    what: str,
    connection: psycopg.Connection[Any],
    table: str,
    columns: Sequence[str],
    rows: Iterable[Row],
) -> None:
    started, count, named = time.monotonic(), 0, ", ".join(f'"{name}"' for name in columns)
    with connection.transaction(), connection.cursor() as cursor:
        # Tables with row-level security take no COPY from whom it binds, and it binds their owner too.
        cursor.execute(f"CREATE TEMP TABLE seeding (LIKE {table}) ON COMMIT DROP")
        _take_nulls(cursor, columns)
        with cursor.copy(f"COPY seeding ({named}) FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
                count += 1
        cursor.execute(f"INSERT INTO {table} ({named}) SELECT {named} FROM seeding")
    print(f"{what}: {count:,} rows in {time.monotonic() - started:.1f} s", flush=True)


def _take_nulls(cursor: psycopg.Cursor[Any], columns: Sequence[str]) -> None:
    """Columns that are not seeded get their defaults, if they have one, when rows move on."""
    cursor.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = 'seeding'::regclass AND attnum > 0 AND attnotnull"
    )
    for (name,) in cursor.fetchall():
        if name not in columns:
            cursor.execute(f'ALTER TABLE seeding ALTER COLUMN "{name}" DROP NOT NULL')


def _roll_up(connection: psycopg.Connection[Any], tenant_ids: Sequence[str]) -> None:
    started = time.monotonic()
    for statement in seed_rows.ROLL_UPS:
        connection.execute(statement, [list(tenant_ids)])
    print(f"hours and days: {time.monotonic() - started:.1f} s", flush=True)


def join_platform() -> None:
    """The database of a platform that runs beside, unless `DATABASE_URL` names one."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
    from console.processes.beside import join

    if "DATABASE_URL" not in os.environ:
        join()
    django.setup()


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.seed", description="Fill a database for measuring."
    )
    parser.add_argument("--tenants", type=int, default=1_000)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--usage", type=int, default=1_000_000, help="usage rows (minutes)")
    parser.add_argument("--audit", type=int, default=1_000_000, help="audit events")
    parser.add_argument("--days", type=int, default=62, help="days the usage lies in")
    parser.add_argument("--seed", type=int, default=4, help="of the random numbers")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
