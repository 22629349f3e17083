"""One process this one started, watches, and stops by a ladder of signals."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

PROJECT_DIR = Path(__file__).resolve().parent.parent.parent

Ladder = Sequence[tuple[signal.Signals, float]]
"""Signals in order, each with the seconds it is given before the next; SIGKILL follows the last."""

POLITE: Ladder = ((signal.SIGTERM, 30.0),)


class OwnedProcess:
    """Started in a session of its own, so that the terminal's Ctrl-C reaches only the launcher."""

    def __init__(self, name: str, command: Sequence[str], log_path: Path, stop: Ladder = POLITE) -> None:
        self.name = name
        self.command = list(command)
        self.log_path = log_path
        self._ladder = stop
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """Negative for a signal, as `subprocess` has it; None while running or never started."""
        return self._process.poll() if self._process else None

    def start(self, environment: Mapping[str, str], cpu_cores: Sequence[int] = ()) -> None:
        """Call from a thread that lives on: the kernel ties the child to the thread that started it."""
        with open_log(self.log_path) as log:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                cwd=PROJECT_DIR,
                start_new_session=True,
            )
        if cpu_cores:
            os.sched_setaffinity(self._process.pid, cpu_cores)

    def ask_to_stop(self) -> None:
        """Send the first signal of the ladder and return at once."""
        if self.is_alive and self._process:
            self._process.send_signal(self._ladder[0][0])

    def stop(self) -> None:
        """Climb the ladder until the process is gone; bounded by the ladder's sum plus 5 s."""
        for number, patience_s in self._ladder:
            if self._process is None or not self.is_alive:
                return
            self._process.send_signal(number)
            if self._exited_within(patience_s):
                return
        if self._process:
            self._process.kill()
            self._exited_within(5.0)

    def kill(self) -> None:
        """SIGKILL, without waiting."""
        if self.is_alive and self._process:
            self._process.kill()

    def log_tail(self, lines: int = 12) -> str:
        """The last lines of the log, for the message that says why it died."""
        return tail(self.log_path, lines)

    def _exited_within(self, patience_s: float) -> bool:
        try:
            assert self._process is not None
            self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            return False
        return True


def open_log(path: Path) -> BinaryIO:
    """Append, private, created when missing; append mode lets a rotation truncate it under the writer."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    return open(descriptor, "ab", buffering=0)


def tail(path: Path, lines: int) -> str:
    """Empty when the file cannot be read."""
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - 16384))
            raw = stream.read()
    except OSError:
        return ""
    return "\n".join(raw.decode(errors="replace").splitlines()[-lines:])
