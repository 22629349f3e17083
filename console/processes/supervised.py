"""A process that is started again when it dies."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

from console.embedded.errors import ServiceError
from console.embedded.owned import OwnedProcess
from console.processes.backoff import Backoff


class Supervised:
    """`step(now)` does what is due; `start` must spawn without waiting for readiness."""

    def __init__(self, process: OwnedProcess, start: Callable[[], None], say: Callable[[str], None]) -> None:
        self.process = process
        self._start = start
        self._say = say
        self._backoff = Backoff()
        self._started_at = 0.0
        self._restart_at: float | None = None
        self.restarts = 0

    @property
    def name(self) -> str:
        return self.process.name

    @property
    def log_path(self) -> Path:
        return self.process.log_path

    def start(self, now: float | None = None) -> None:
        self._started_at = time.monotonic() if now is None else now
        self._restart_at = None
        self._start()

    def adopt(self) -> None:
        """Take over a process somebody else has just started."""
        self._started_at = time.monotonic()

    def step(self, now: float) -> None:
        """Notice a death, or restart when the pause after one is over."""
        if self._restart_at is None:
            if not self.process.is_alive:
                self._schedule(now, describe_exit(self.process.exit_code))
        elif now >= self._restart_at:
            self._restart(now)

    def _restart(self, now: float) -> None:
        self.restarts += 1
        try:
            self.start(now)
        except (OSError, ServiceError) as error:  # out of processes, a leftover that does not end: try again
            self._schedule(now, f"cannot be started ({error})")

    def _schedule(self, now: float, what: str) -> None:
        delay_s = self._backoff.delay_s(now - self._started_at)
        self._restart_at = now + delay_s
        self._say(f"{self.name} {what}, again in {delay_s:.1f} s; see {self.log_path}")


def describe_exit(code: int | None) -> str:
    """`was killed by SIGKILL`, `ended with code 1`."""
    if code is None:
        return "is not running"
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with code {code}"
