"""An embedded PostgreSQL: one private cluster under the state directory, on a private unix socket only.

Trust authentication is enough there: whoever can open the socket already owns the files. The
application's role is no superuser, so row-level security binds it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import psycopg

from console.embedded.binaries import postgres_major
from console.embedded.errors import ServiceError
from console.embedded.identity import Identity
from console.embedded.leftovers import wait_for_leftover
from console.embedded.owned import Ladder, OwnedProcess

ROLE = DATABASE = "tidegate"
APPLICATION_ROLE = "tidegate_app"
"""What `DATABASE_ROLE` of the settings is by default."""
SUPERUSER = "postgres"

# Fast shutdown writes a checkpoint; immediate shutdown leaves crash recovery to the next start.
_STOP: Ladder = ((signal.SIGINT, 20.0), (signal.SIGQUIT, 6.0))
_SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "jit": "off",
    "log_min_messages": "warning",
    "log_min_error_statement": "panic",  # statements hold what people typed
}
# For throw-away clusters of tests: nothing waits for the disk.
_VOLATILE = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


class Postgres:
    """Start, watch, stop. Not thread-safe; call from the main thread (see `OwnedProcess.start`)."""

    name = "postgres"
    variable = "DATABASE_URL"

    def __init__(
        self,
        bin_dir: Path,
        data_dir: Path,
        socket_dir: Path,
        log_path: Path,
        identity: Identity,
        durable: bool,
    ) -> None:
        self._bin_dir = bin_dir
        self._data_dir = data_dir
        self._socket_dir = socket_dir
        self._identity = identity
        self._durable = durable
        command = identity.wrap([bin_dir / "postgres", *self._options()], signal.SIGINT)
        self.process = OwnedProcess(self.name, command, log_path, _STOP)

    @property
    def url(self) -> str:
        return f"postgresql://{ROLE}@/{DATABASE}?host={quote(str(self._socket_dir))}"

    def prepare(self) -> None:
        """Create the cluster when there is none; raises `ServiceError` with what initdb said."""
        if not (self._data_dir / "PG_VERSION").exists():
            self._initialise()
        self._check_version()

    def start(self) -> None:
        """Spawn the server; `is_ready` tells when it answers. Crash recovery may take a while."""
        wait_for_leftover(self.name, self._data_dir / "postmaster.pid", self._data_dir)
        (self._socket_dir / ".s.PGSQL.5432.lock").unlink(
            missing_ok=True
        )  # names a process, as stale as the other
        self.process.start(_bare_environment())

    def is_ready(self) -> bool:
        """Answers, and the application's role and database exist."""
        try:
            with self._connect() as connection:
                _ensure_database(connection)
        except psycopg.OperationalError:
            return False
        return True

    def _options(self) -> list[str]:
        settings = _SETTINGS | ({} if self._durable else _VOLATILE)
        settings["unix_socket_directories"] = str(self._socket_dir)
        return ["-D", str(self._data_dir), *(f"--{name}={value}" for name, value in settings.items())]

    def _initialise(self) -> None:
        """Into a directory that is renamed when complete, so that a killed initdb leaves no half cluster."""
        unfinished = self._data_dir.with_name(self._data_dir.name + ".initial")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(mode=0o700)
        if self._identity.owner:
            os.chown(unfinished, *self._identity.owner)
        command: list[str | Path] = [self._bin_dir / "initdb", "-D", unfinished, *self._initdb_options()]
        wrapped = self._identity.wrap(command, signal.SIGKILL)
        done = subprocess.run(wrapped, capture_output=True, text=True, env=_bare_environment(), check=False)
        if done.returncode != 0:
            raise ServiceError(f"initdb failed in {unfinished}:\n{done.stderr.strip()}")
        unfinished.rename(self._data_dir)

    def _initdb_options(self) -> list[str]:
        options = ["-U", SUPERUSER, "-A", "trust", "-E", "UTF8", "--no-instructions"]
        if postgres_major(self._bin_dir) >= 17:
            options += ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        else:
            options += ["--locale=C.UTF-8"]
        return options if self._durable else [*options, "--no-sync"]

    def _check_version(self) -> None:
        cluster = (self._data_dir / "PG_VERSION").read_text().strip()
        program = postgres_major(self._bin_dir)
        if cluster != str(program):
            raise ServiceError(
                f"{self._data_dir} was written by PostgreSQL {cluster}, but {self._bin_dir} is {program}. "
                "Dump and restore it with the old version's programs, or choose another --state-dir."
            )

    def _connect(self) -> psycopg.Connection:
        return psycopg.connect(
            host=str(self._socket_dir), user=SUPERUSER, dbname="postgres", autocommit=True, connect_timeout=5
        )


def _ensure_database(connection: psycopg.Connection) -> None:
    """CREATEDB is for the test runner; neither superuser nor BYPASSRLS.

    The login owns the tables and migrates them; the application works as a role that owns nothing.
    """
    if not connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [ROLE]).fetchone():
        connection.execute(f"CREATE ROLE {ROLE} LOGIN CREATEDB")
    if not connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [APPLICATION_ROLE]).fetchone():
        connection.execute(f"CREATE ROLE {APPLICATION_ROLE} NOLOGIN NOINHERIT")
        connection.execute(f"GRANT {APPLICATION_ROLE} TO {ROLE}")
    if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone():
        connection.execute(f"CREATE DATABASE {DATABASE} OWNER {ROLE}")


def _bare_environment() -> Mapping[str, str]:
    """No PG* variables of the caller, no secrets of ours."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}
