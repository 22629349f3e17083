"""Both services of one state directory, as far as nobody brought their own.

`DATABASE_URL` and `VALKEY_URL` take over when set: then nothing is started for them.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from console.embedded.binaries import postgres_bin_dir, valkey_server
from console.embedded.directories import account_directory, private_directory, run_directory
from console.embedded.errors import ServiceError
from console.embedded.identity import unprivileged
from console.embedded.lock import DirectoryLock
from console.embedded.postgres import Postgres
from console.embedded.valkey import Valkey

Service = Postgres | Valkey
READY_TIMEOUT_S = 60.0
FAILING_AFTER_S = 10.0
"""A service that still dies after this long will not recover by itself."""

Progress = Callable[[str], None]


class EmbeddedServices:
    """Raises `ServiceError` from `start` with a text for a person; `stop` is safe at any time."""

    def __init__(
        self, state_dir: Path, *, durable: bool = True, environ: Mapping[str, str] = os.environ
    ) -> None:
        self.state_dir = state_dir
        self.services: Sequence[Service] = ()
        self._temporary: list[Path] = []
        self._durable = durable
        self._environ = environ
        self._lock = DirectoryLock(state_dir / "services.lock")

    def start(self, progress: Progress = lambda text: None) -> None:
        """Return once both answer; at most a minute for crash recovery."""
        private_directory(self.state_dir)
        self._lock.acquire()
        try:
            self.services = self._wanted()
            for service in self.services:
                self._begin(service, progress)
            for service in self.services:
                _wait_ready(service, progress)
        except BaseException:
            self.stop()
            raise

    def urls(self) -> dict[str, str]:
        """`DATABASE_URL` and `VALKEY_URL`, embedded or brought along."""
        given = {
            name: self._environ[name] for name in ("DATABASE_URL", "VALKEY_URL") if self._environ.get(name)
        }
        return given | {service.variable: service.url for service in self.services}

    def stop(self) -> None:
        for service in self.services:
            service.process.ask_to_stop()
        for service in self.services:
            service.process.stop()
        for directory in self._temporary:
            with contextlib.suppress(OSError):  # not empty: somebody else's problem, and harmless
                directory.rmdir()
        self._lock.release()

    def _wanted(self) -> list[Service]:
        wanted: list[Service] = []
        sockets, logs = run_directory(self.state_dir), private_directory(self.state_dir / "log")
        if not self._environ.get("DATABASE_URL"):
            wanted.append(self._postgres(sockets, logs))
        if not self._environ.get("VALKEY_URL"):
            data_dir = self.state_dir / "valkey"
            wanted.append(Valkey(valkey_server(), data_dir, sockets, logs / "valkey.log", self._durable))
        return wanted

    def _postgres(self, sockets: Path, logs: Path) -> Postgres:
        bin_dir = postgres_bin_dir()
        identity = unprivileged(bin_dir / "postgres", self.state_dir)
        if (
            identity.owner
        ):  # another account must pass the state directory, and cannot enter the run directory
            self.state_dir.chmod(0o711)
            sockets = account_directory(sockets, *identity.owner)
            self._temporary.append(sockets)
        data_dir = self.state_dir / "postgres"
        return Postgres(bin_dir, data_dir, sockets, logs / "postgres.log", identity, self._durable)

    @staticmethod
    def _begin(service: Service, progress: Progress) -> None:
        progress(f"starting {service.name}")
        service.prepare()
        service.start()


def _wait_ready(service: Service, progress: Progress) -> None:
    started = time.monotonic()
    next_word = started + 3
    while not service.is_ready():
        now = time.monotonic()
        if now > started + READY_TIMEOUT_S:
            raise ServiceError(
                f"{service.name} did not answer within {READY_TIMEOUT_S:.0f} s:\n{service.process.log_tail()}"
            )
        if now > next_word:
            progress(f"{service.name} is recovering ({now - started:.0f} s)")
            next_word = now + 3
        if not service.process.is_alive:
            _restart(service, now >= started + FAILING_AFTER_S)
        time.sleep(0.02)


def _restart(service: Service, is_late: bool) -> None:
    """A server whose predecessor was killed may find its shared memory still in use for a moment."""
    if is_late:
        raise ServiceError(
            f"{service.name} ended with code {service.process.exit_code}:\n{service.process.log_tail()}"
        )
    time.sleep(0.3)
    service.start()
