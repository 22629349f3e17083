"""Days of the slices' table: made before they are written, dropped when they have served their time.

The application's role owns no table, so the two functions that the migration makes work as their owner. They
take numbers only, and touch nothing but partitions of this one table. A partition is not to be read past its
parent: it has row-level security, and no policy.
"""

from __future__ import annotations

from django.db import connection

DAY_S = 86_400
TABLE = "control_metricslice"

LISTS = "\n".join(
    f"""
CREATE TABLE {TABLE}_{resolution_s} PARTITION OF {TABLE} FOR VALUES IN ({resolution_s})
    PARTITION BY RANGE (start);
ALTER TABLE {TABLE}_{resolution_s} ENABLE ROW LEVEL SECURITY;
ALTER TABLE {TABLE}_{resolution_s} FORCE ROW LEVEL SECURITY;
"""
    for resolution_s in (10, 60, 3600)
)

MAKE_FUNCTIONS = f"""
DO $make$
DECLARE here name := current_schema();
BEGIN
    EXECUTE format($def$
CREATE FUNCTION control_make_metric_day(resolution int, day bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = %1$I, pg_temp AS $body$
DECLARE part name := format('{TABLE}_%%s_%%s', resolution, day);
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('{TABLE}'));
    IF to_regclass(part) IS NOT NULL THEN RETURN; END IF;
    EXECUTE format('CREATE TABLE %%I PARTITION OF %%I FOR VALUES FROM (%%s) TO (%%s)',
                   part, format('{TABLE}_%%s', resolution), day * {DAY_S}, (day + 1) * {DAY_S});
    EXECUTE format('ALTER TABLE %%I ENABLE ROW LEVEL SECURITY', part);
    EXECUTE format('ALTER TABLE %%I FORCE ROW LEVEL SECURITY', part);
END $body$ $def$, here);
    EXECUTE format($def$
CREATE FUNCTION control_drop_metric_days(resolution int, before bigint) RETURNS int
LANGUAGE plpgsql SECURITY DEFINER SET search_path = %1$I, pg_temp AS $body$
DECLARE part name; dropped int := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('{TABLE}'));
    FOR part IN
        SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = to_regclass(format('{TABLE}_%%s', resolution))
          AND substring(c.relname FROM '[0-9]+$')::bigint < before
    LOOP
        EXECUTE format('DROP TABLE %%I', part);
        dropped := dropped + 1;
    END LOOP;
    RETURN dropped;
END $body$ $def$, here);
END $make$;
REVOKE ALL ON FUNCTION control_make_metric_day(int, bigint), control_drop_metric_days(int, bigint) FROM PUBLIC;
"""  # noqa: S608 - constants of this module

DROP_FUNCTIONS = """
DROP FUNCTION control_make_metric_day(int, bigint);
DROP FUNCTION control_drop_metric_days(int, bigint);
"""


def make_day(resolution_s: int, start: int) -> None:
    """Have the partition that a slice beginning at `start` (Unix seconds) goes to."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT control_make_metric_day(%s, %s)", [resolution_s, start // DAY_S])


def drop_days(resolution_s: int, before: int) -> int:
    """Drop whole days that ended before a moment (Unix seconds); returns how many."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT control_drop_metric_days(%s, %s)", [resolution_s, before // DAY_S])
        return int(cursor.fetchone()[0])
