"""Cursors that tell PostgreSQL, with each statement, which tenants' rows the running code may see.

The setting is local to its transaction, so nothing of it stays on a pooled connection. Outside a transaction it
travels in front of the statement, in the same message and the same implicit transaction: no round trip. Inside
one it is sent with the first statement, and again when the scope changed since.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db.backends.postgresql.base import CursorMixin
from psycopg import ClientCursor, ServerCursor, sql
from psycopg.client_cursor import ClientCursorMixin
from psycopg.pq import TransactionStatus

from tenants.scopes import SETTING, scope_setting

_SET = "SELECT set_config('{setting}', '{tenants}', true)"


class Told:
    """What the open transaction of one connection was told; one per connection, shared by its cursors."""

    __slots__ = ("tenants",)

    def __init__(self) -> None:
        self.tenants: str | None = None


class _Scoped:
    """Mixed into a cursor. Without `told` (a connection that is not Django's) it does nothing."""

    told: Told | None = None
    _conn: Any
    connection: Any

    def _untold(self, query: Any) -> str | None:
        """The statement that must go first; None when the transaction knows, or can be told nothing."""
        if self.told is None:
            return None
        status = self._conn.pgconn.transaction_status
        tenants = scope_setting()
        if status == TransactionStatus.IDLE:
            self.told.tenants = ""  # a transaction begins with none
        elif status != TransactionStatus.INTRANS:
            self.told.tenants = None  # it failed: only a rollback is heard, and undoes what was told
            return None
        if _undoes(query):
            self.told.tenants = None
            return None
        if tenants == self.told.tenants:
            return None
        # In autocommit the next statement is another transaction, and finds IDLE again.
        self.told.tenants = tenants
        return _SET.format(setting=SETTING, tenants=tenants)

    def _forget(self) -> None:
        if self.told is not None:
            self.told.tenants = None

    @contextmanager
    def _told_apart(self, query: Any) -> Iterator[None]:
        """For statements that cannot travel behind another one: the setting goes first, in one transaction."""
        first = self._untold(query)
        if first is None:
            yield
            return
        try:
            with self.connection.transaction():
                _tell(self.connection, first)
                yield
        except BaseException:
            self._forget()  # what was told went with the savepoint
            raise


class ScopedCursor(_Scoped, CursorMixin, ClientCursor[Any]):
    def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
        first = self._untold(query)
        if first is None:
            return super().execute(query, params, **options)
        super().execute(_behind(first, query), params, **options)
        self.nextset()
        return self

    def executemany(self, query: Any, params_seq: Iterable[Any], **options: Any) -> None:
        with self._told_apart(query):
            super().executemany(query, params_seq, **options)

    @contextmanager
    def copy(self, statement: Any, params: Any = None, **options: Any) -> Iterator[Any]:
        with self._told_apart(statement), super().copy(statement, params, **options) as copy:
            yield copy


class ScopedServerSideCursor(_Scoped, CursorMixin, ClientCursorMixin[Any, Any], ServerCursor[Any]):
    """Of `QuerySet.iterator()`: outside a transaction it is held, and so filled, by the end of `execute`."""

    def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
        with self._told_apart(query):
            return super().execute(query, params, **options)


def _tell(connection: Any, statement: str) -> None:
    with connection.cursor() as cursor:  # has no `told`, and so sends it as it is
        cursor.execute(statement)


def _behind(first: str, query: Any) -> Any:
    if isinstance(query, str):
        return f"{first};{query}"
    if isinstance(query, bytes):
        return first.encode() + b";" + query
    return sql.SQL(first + ";") + query


def _undoes(query: Any) -> bool:
    """Whether what was told may be undone: the rollback to a savepoint restores the setting before it."""
    return isinstance(query, str) and query.startswith("ROLLBACK")
