"""Reads events with their places in the chains, in pages, so that a million take no more memory than a page."""

from __future__ import annotations

from collections.abc import Iterator

from django.db import connection
from django.db.models import QuerySet

from tenants.models import AuditEvent
from tenants.trail.canonical import COLUMNS
from tenants.trail.formats.writer import Row

PAGE_ROWS = 5_000

_PAGE = f"""
SELECT {", ".join(f"{sql} AS {name}" for name, sql in COLUMNS.items())}, l.chain, l.prev_hash, l.hash
FROM tenants_auditlink l JOIN tenants_auditevent e ON e.seq = l.event_seq
WHERE (l.chain, l.position) > (%s, %s) {{condition}}
ORDER BY l.chain, l.position LIMIT %s
"""  # noqa: S608 - made of constants

_NEXT = f"""
SELECT {", ".join(f"{sql} AS {name}" for name, sql in COLUMNS.items())}, l.chain, l.prev_hash, l.hash
FROM tenants_auditlink l JOIN tenants_auditevent e ON e.seq = l.event_seq
WHERE l.chain = %s AND l.position > %s ORDER BY l.position LIMIT %s
"""  # noqa: S608 - made of constants


def pages(events: QuerySet[AuditEvent]) -> Iterator[list[Row]]:
    """Chain after chain, in the order of positions. Events that were appended meanwhile may be among them."""
    chosen, parameters = events.order_by().values("seq").query.sql_with_params()
    statement = _PAGE.format(condition=f"AND e.seq IN ({chosen})")
    chain, position = "", 0
    while True:
        with connection.cursor() as cursor:
            cursor.execute(statement, [chain, position, *parameters, PAGE_ROWS])
            names = [column.name for column in cursor.description]
            page = [dict(zip(names, values, strict=True)) for values in cursor.fetchall()]
        if page:
            yield page
        if len(page) < PAGE_ROWS:
            return
        chain, position = page[-1]["chain"], page[-1]["position"]


def after(chain: str, position: int, limit: int) -> list[Row]:
    """The next events of one chain."""
    with connection.cursor() as cursor:
        cursor.execute(_NEXT, [chain, position, limit])
        names = [column.name for column in cursor.description]
        return [dict(zip(names, values, strict=True)) for values in cursor.fetchall()]
