"""Django's PostgreSQL backend, except that one dead pooled connection empties the pool of all dead ones.

psycopg's own check on loan waits longer after each dead connection it meets (1 s, 2 s, 4 s …), so after a
restart of PostgreSQL a pool of many would keep pages waiting beyond their timeout.
"""

from __future__ import annotations

from typing import Any

import psycopg
from django.db.backends.postgresql import base
from psycopg_pool import ConnectionPool

ATTEMPTS = 3


class DatabaseWrapper(base.DatabaseWrapper):
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


def _is_alive(connection: Any) -> bool:
    try:
        ConnectionPool.check_connection(connection)
    except psycopg.OperationalError:
        return False
    return True
