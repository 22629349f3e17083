"""Django's PostgreSQL backend, with row-level security, and a pool that recovers at once.

One dead pooled connection empties the pool of all dead ones: psycopg's own check on loan waits longer after
each dead connection it meets (1 s, 2 s, 4 s …), so after a restart of PostgreSQL a pool of many would keep
pages waiting beyond their timeout.

Connections work as the application's role and tell each statement's scope (`tenants.rowsecurity`). What
changes the schema, and what empties tables between tests, works as whoever logged in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from django.conf import settings
from django.db.backends.base.base import NO_DB_ALIAS
from django.db.backends.postgresql import base, operations, schema
from psycopg_pool import ConnectionPool

from console.database.cursors import ScopedCursor, ScopedServerSideCursor, Told
from tenants.scopes import all_tenants

ATTEMPTS = 3
ASSUME_ROLE = """
SELECT set_config('role', rolname, false) FROM pg_roles
WHERE rolname = %s AND rolname <> current_user AND pg_has_role(current_user, oid, 'MEMBER')
  AND has_table_privilege(oid, to_regclass('django_migrations'), 'INSERT')
"""
"""Works as the role from here on: only where it exists, the login may, and this database was given to it."""

SORT_IN_MEMORY = """
SELECT set_config('work_mem', '16MB', false) WHERE pg_size_bytes(current_setting('work_mem')) < 16 << 20
"""
"""With PostgreSQL's own 4 MB the usage of ten thousand keys is summed through files, in twice the time."""


class DatabaseOperations(operations.DatabaseOperations):
    connection: DatabaseWrapper

    def execute_sql_flush(self, sql_list: Iterable[str]) -> None:
        with self.connection.as_owner():
            super().execute_sql_flush(sql_list)


class DatabaseSchemaEditor(schema.DatabaseSchemaEditor):
    """Changes the schema, and moves the rows of every tenant, as the tables' owner."""

    connection: DatabaseWrapper

    def __enter__(self) -> Any:
        self._as_owner = self.connection.as_owner()
        self._as_owner.__enter__()
        return super().__enter__()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            super().__exit__(kind, error, trace)
        finally:
            self._as_owner.__exit__(None, None, None)


class DatabaseWrapper(base.DatabaseWrapper):
    SchemaEditorClass = DatabaseSchemaEditor
    ops_class = DatabaseOperations

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.told = Told()

    def get_connection_params(self) -> dict[str, Any]:
        return super().get_connection_params() | {"cursor_factory": ScopedCursor}

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        """A live connection. Raises `OperationalError` when there is none within the pool's timeout."""
        connection = super().get_new_connection(conn_params)
        pool = self.pool
        for _ in range(ATTEMPTS if pool is not None else 0):
            if _is_alive(connection):
                break
            pool.putconn(connection)
            pool.check()  # replaces every dead one that lies idle
            connection = super().get_new_connection(conn_params)
        return connection

    def create_cursor(self, name: str | None = None) -> Any:
        cursor = super().create_cursor(name)
        if name:
            cursor = ScopedServerSideCursor(
                self.connection, name=name, scrollable=False, withhold=self.connection.autocommit
            )
        if self.alias != NO_DB_ALIAS:  # databases are made and dropped by statements that go alone
            cursor.told = self.told
        return cursor

    @contextmanager
    def as_owner(self) -> Iterator[None]:
        """Works as whoever logged in, on the rows of every tenant."""
        self.ensure_connection()
        with all_tenants("what changes the schema keeps every tenant's rows"):
            self._execute("RESET ROLE")
            try:
                yield
            finally:
                if self.connection is not None and not self.needs_rollback:
                    self._assume_role(self.connection)

    def _configure_connection(self, connection: Any) -> bool:
        super()._configure_connection(connection)  # type: ignore[misc]
        with connection.cursor() as cursor:
            cursor.execute(SORT_IN_MEMORY)
        self._assume_role(connection)
        return True

    def _assume_role(self, connection: Any) -> None:
        """Not where databases are made and dropped: that is the login's to do."""
        if not settings.DATABASE_ROLE or self.alias == NO_DB_ALIAS:
            return
        with connection.cursor() as cursor:
            cursor.execute(ASSUME_ROLE, [settings.DATABASE_ROLE])

    def _execute(self, statement: str) -> None:
        with self.connection.cursor() as cursor:
            cursor.execute(statement)


def _is_alive(connection: Any) -> bool:
    try:
        ConnectionPool.check_connection(connection)
    except psycopg.OperationalError:
        return False
    return True
