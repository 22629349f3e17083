"""A restarted PostgreSQL costs nobody a page: dead pooled connections are replaced together."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from django.db import connection

CONNECTIONS = 8


def _hold(barrier: Barrier) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        barrier.wait(10)
    connection.close()


@pytest.mark.django_db(transaction=True)
def test_many_dead_connections_in_the_pool_cost_one_round_not_one_wait_each() -> None:
    barrier = Barrier(CONNECTIONS)
    with ThreadPoolExecutor(CONNECTIONS) as threads:
        list(threads.map(_hold, [barrier] * CONNECTIONS))
    with connection.as_owner(), connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        assert cursor.fetchone()[0] >= CONNECTIONS - 1
    connection.close()
    started = time.monotonic()
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(_hold, [Barrier(1) for _ in range(2 * CONNECTIONS)]))
    assert time.monotonic() - started < 9  # one wait for the pool is 10 s
