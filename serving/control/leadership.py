"""One controller works, the others stand by: a session-level advisory lock of PostgreSQL decides.

The lock lives and dies with one connection of its own. A leader that loses it may finish the step it is
in while another begins; steps are idempotent and take row locks, so that does no harm.
"""

from __future__ import annotations

import time
from typing import Any

import psycopg
import structlog
from django.db import connection

from serving.seam.postgres import REPORTS_CHANNEL

_LOCK = 0x71DE_0000

log = structlog.get_logger(__name__)


class Leadership:
    """Also hears of new reports: the lock's connection listens on their channel."""

    def __init__(self, *, name: str = "tidegate-controller") -> None:
        self._name = name
        self._connection: psycopg.Connection[Any] | None = None
        self._is_leader = False

    def acquire(self) -> bool:
        """Whether this process leads now; tries to, when nobody does. Never raises."""
        try:
            if self._is_leader:
                self._ask("SELECT 1")
                return True
            self._is_leader = bool(self._ask("SELECT pg_try_advisory_lock(%s)", _LOCK))
        except (psycopg.Error, OSError) as error:
            self._lose(str(error))
            return False
        if self._is_leader:
            log.info("controller.leads")
        return self._is_leader

    def wait(self, timeout_s: float) -> bool:
        """Sleep until a report arrives (True) or `timeout_s` has passed (False). Never raises."""
        if self._connection is None:
            time.sleep(timeout_s)
            return False
        try:
            return any(True for _ in self._connection.notifies(timeout=timeout_s, stop_after=1))
        except (psycopg.Error, OSError) as error:
            self._lose(str(error))
            time.sleep(timeout_s)
            return False

    def release(self) -> None:
        """Let another controller lead at once."""
        self._is_leader = False
        self._close()

    def _ask(self, statement: str, *values: object) -> Any:
        if self._connection is None:
            self._connection = self._connect()
            self._connection.execute(f"LISTEN {REPORTS_CHANNEL}")
        row = self._connection.execute(statement.encode(), values or None).fetchone()
        return row[0] if row else None

    def _connect(self) -> psycopg.Connection[Any]:
        settings = connection.settings_dict
        return psycopg.connect(
            dbname=settings["NAME"],
            user=settings["USER"] or None,
            password=settings["PASSWORD"] or None,
            host=settings["HOST"] or None,
            port=settings["PORT"] or None,
            autocommit=True,
            connect_timeout=3,
            application_name=self._name,
            keepalives_idle=5,
            keepalives_interval=2,
            keepalives_count=2,
        )

    def _lose(self, reason: str) -> None:
        if self._is_leader or self._connection is not None:
            log.warning("controller.connection_lost", was_leader=self._is_leader, reason=reason)
        self._is_leader = False
        self._close()

    def _close(self) -> None:
        lost, self._connection = self._connection, None
        if lost is not None:
            lost.close()
