"""Child processes of a benchmark: pinned to a core, stopped in the end, their output kept for failures."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks import machine

PROJECT_DIR = Path(__file__).resolve().parent.parent


class StartFailed(RuntimeError):
    """A process ended, or did not become ready in time."""


@contextlib.contextmanager
def started(
    name: str,
    command: Sequence[str],
    *,
    core: int,
    log_dir: Path,
    environment: dict[str, str] | None = None,
    cwd: Path = PROJECT_DIR,
    pass_fds: Sequence[int] = (),
    pipes: bool = False,
) -> Iterator[subprocess.Popen[str]]:
    """Run a process on one core in its own session; all of its session is gone afterwards."""
    pipe = subprocess.PIPE if pipes else None
    with (log_dir / f"{name}.log").open("w") as log:
        process = subprocess.Popen(
            ["taskset", "-c", str(core), *command],
            cwd=cwd,
            env=os.environ | (environment or {}),
            stdin=pipe or subprocess.DEVNULL,
            stdout=pipe or log,
            stderr=log,
            pass_fds=pass_fds,
            start_new_session=True,
            text=True,
            bufsize=1,
        )
        machine.go_first(process.pid)
        try:
            yield process
        finally:
            stop(process)


def stop(process: subprocess.Popen[str], timeout_s: float = 5.0) -> None:
    family = machine.tree(process.pid)
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout_s)
    for pid in family:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def wait_until(
    is_ready: Callable[[], bool],
    process: subprocess.Popen[str],
    name: str,
    log_dir: Path,
    timeout_s: float = 90.0,
) -> float:
    """Seconds until `is_ready`. Raises `StartFailed` with the end of the log."""
    began = time.perf_counter()
    while time.perf_counter() - began < timeout_s:
        if process.poll() is not None:
            break
        if is_ready():
            return time.perf_counter() - began
        time.sleep(0.02)
    tail = (log_dir / f"{name}.log").read_text()[-2000:]
    raise StartFailed(f"{name} did not start (exit status {process.poll()}):\n{tail}")


def finished(command: Sequence[str], *, stdin: bytes = b"", timeout_s: float) -> bytes:
    """Run to the end and return its output. Raises `CalledProcessError`, `TimeoutExpired`."""
    process = subprocess.Popen(
        command, cwd=PROJECT_DIR, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    machine.go_first(process.pid)
    try:
        output, _ = process.communicate(stdin, timeout=timeout_s)
    except BaseException:
        process.kill()
        process.wait()
        raise
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return output


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def python(*arguments: str) -> list[str]:
    return [sys.executable, *arguments]
