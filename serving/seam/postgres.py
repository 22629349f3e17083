"""The seam over PostgreSQL: two tables, one statement per question, NOTIFY only as a hint.

Version numbers come from the single row of `control_config_clock`, updated inside the publishing
transaction. Its row lock is held until commit, so versions become visible in their own order and a
reader that has seen version n can never be handed a smaller one later.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any, LiteralString

import msgspec
import psycopg
import structlog

from serving.contract import ConfigBody, ConfigChange, Report, decode_config, encode_body
from serving.seam import Delta, SeamUnavailable

CONFIG_CHANNEL = "tidegate_config"
REPORTS_CHANNEL = "tidegate_reports"

# One statement is one snapshot: the clock and the entries cannot disagree.
_CHANGES: LiteralString = """
WITH clock AS (
    SELECT version, history, floor,
           (%(version)s = 0 OR %(version)s > version OR %(version)s < floor
            OR (%(history)s <> '' AND %(history)s <> history)) AS is_complete
      FROM control_config_clock WHERE id = 1
)
SELECT clock.version, clock.history, clock.is_complete, entry.kind, entry.key, entry.version, entry.body::text
  FROM clock LEFT JOIN control_config_entry AS entry
    ON entry.kind = ANY(%(kinds)s)
   AND ((clock.is_complete AND NOT entry.deleted) OR (NOT clock.is_complete AND entry.version > %(version)s))
 ORDER BY entry.version
"""

_STORE: LiteralString = """
INSERT INTO control_report (process, sequence, kind, body, received_at, error)
SELECT process, sequence, kind, body::jsonb, clock_timestamp(), ''
  FROM unnest(%s::text[], %s::bigint[], %s::text[], %s::text[]) AS sent (process, sequence, kind, body)
    ON CONFLICT (process, sequence) DO NOTHING
"""

# jsonb cannot hold NUL; a crash reason that carries one must not block the reports behind it.
_ESCAPED_NUL = re.compile(rb"(?<!\\)((?:\\\\)*)\\u0000")

log = structlog.get_logger(__name__)


class PostgresSeam:
    """Connects when first asked and again after every failure; safe to use from several tasks."""

    def __init__(self, database_url: str, *, timeout_s: float = 3.0, name: str = "tidegate-seam") -> None:
        self._url = database_url
        self._timeout_s = timeout_s
        self._name = name
        self._queries: psycopg.AsyncConnection[Any] | None = None
        self._hints: psycopg.AsyncConnection[Any] | None = None
        self._lock = asyncio.Lock()
        self._is_closed = False

    async def changes_since(self, version: int, kinds: tuple[str, ...], history: str = "") -> Delta:
        rows = await self._ask(_CHANGES, {"version": version, "kinds": list(kinds), "history": history})
        if not rows:
            return Delta(0, history)  # nothing was ever published
        current, line, is_complete = rows[0][:3]
        changes = tuple(_change(*row[3:]) for row in rows if row[3] is not None)
        return Delta(current, line, changes, is_complete)

    async def send_reports(self, reports: Sequence[Report]) -> None:
        if reports:
            columns = zip(*(_row(report) for report in reports), strict=True)
            await self._ask(_STORE, [list(column) for column in columns])
            await self._ask("SELECT pg_notify(%s, '')", [REPORTS_CHANNEL])

    async def wait_for_hint(self, timeout_s: float) -> None:
        try:
            listener = self._hints or await self._listen()
            async for _ in listener.notifies(timeout=timeout_s, stop_after=1):
                pass
        except (psycopg.Error, OSError, TimeoutError):
            await self._drop_hints()
            await asyncio.sleep(timeout_s)

    async def close(self) -> None:
        self._is_closed = True
        await self._drop_hints()
        async with self._lock:
            await self._drop_queries()

    async def _ask(
        self, statement: LiteralString, values: dict[str, Any] | list[Any]
    ) -> list[tuple[Any, ...]]:
        async with self._lock:
            try:
                # Also bounds a server that accepts and then stays silent.
                async with asyncio.timeout(self._timeout_s):
                    return await self._fetch(statement, values)
            except (psycopg.Error, OSError, TimeoutError) as error:
                await self._drop_queries()
                raise SeamUnavailable(str(error) or type(error).__name__) from error
            except asyncio.CancelledError:
                # The answer may still be under way: this connection cannot be asked again.
                await self._drop_queries()
                raise

    async def _fetch(
        self, statement: LiteralString, values: dict[str, Any] | list[Any]
    ) -> list[tuple[Any, ...]]:
        if self._queries is None:
            self._queries = await self._connect()
        cursor = await self._queries.execute(statement, values)
        return await cursor.fetchall() if cursor.description else []

    async def _listen(self) -> psycopg.AsyncConnection[Any]:
        async with asyncio.timeout(self._timeout_s):
            self._hints = await self._connect()
            await self._hints.execute(f"LISTEN {CONFIG_CHANNEL}")
        return self._hints

    async def _connect(self) -> psycopg.AsyncConnection[Any]:
        if self._is_closed:
            raise psycopg.OperationalError("the seam is closed")
        return await psycopg.AsyncConnection.connect(
            self._url,
            autocommit=True,
            connect_timeout=max(2, round(self._timeout_s)),
            application_name=self._name,
            keepalives_idle=5,
            keepalives_interval=2,
            keepalives_count=2,
        )

    async def _drop_queries(self) -> None:
        connection, self._queries = self._queries, None
        await _close(connection)

    async def _drop_hints(self) -> None:
        connection, self._hints = self._hints, None
        await _close(connection)


async def _close(connection: psycopg.AsyncConnection[Any] | None) -> None:
    if connection is not None:
        await connection.close()


def _row(report: Report) -> tuple[str, int, str, str]:
    body = _ESCAPED_NUL.sub(rb"\1", encode_body(report.body))
    kind = type(report.body).__struct_config__.tag
    return report.process, report.sequence, str(kind), body.decode()


def _change(kind: str, key: str, version: int, body: str | None) -> ConfigChange:
    return ConfigChange(kind, key, version, None if body is None else _read(kind, key, body))


def _read(kind: str, key: str, body: str) -> ConfigBody | None:
    try:
        return decode_config(body)
    except msgspec.ValidationError as error:
        # Fail closed: what this release cannot read does not exist for it.
        log.error("config.unreadable", kind=kind, key=key, error=str(error))
        return None
