"""How a worker comes to life: `local` as a subprocess of the agent; others can follow the same protocol."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

OnLine = Callable[[bytes], None]
OnExit = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Job:
    """One worker process: a replica, or a validation that ends by itself."""

    name: str
    """Names the spec and log files."""
    spec: bytes
    """The JSON of `serving.worker.spec.WorkerSpec`."""
    log_path: Path
    arguments: tuple[str, ...] = ()


class Handle(Protocol):
    """A running worker."""

    @property
    def pid(self) -> int: ...

    def send(self, line: bytes) -> None:
        """A line to the worker's control channel; lost silently when the worker is gone."""

    def kill(self) -> None:
        """SIGKILL; `on_exit` still comes."""


class Launcher(Protocol):
    async def launch(self, job: Job, on_line: OnLine, on_exit: OnExit) -> Handle:
        """Start `job`; the callbacks run in the event loop, `on_exit` once and last.

        `on_line` gets each line the worker says. `on_exit` gets how it ended, for a person. Raises `OSError`
        when the process cannot be started.
        """
