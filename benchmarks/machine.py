"""The machine under measurement: one measurement at a time, CPU time by process, who else is using it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import re
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
LOCK_PATH = Path(tempfile.gettempdir()) / "tidegate-benchmark.lock"


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Hold the machine: other measurements wait here."""
    with LOCK_PATH.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def cpu_s(pid: int) -> float:
    """CPU seconds a process (all its threads, and children it has waited for) used; 0 when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def busy_s() -> float:
    """CPU seconds used on all cores since the machine started."""
    fields = [int(value) for value in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / _TICKS_PER_S


def tree(pid: int) -> list[int]:
    """A process and all its living descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found, todo = [], [pid]
    while todo:
        found.append(todo.pop())
        todo += children.get(found[-1], [])
    return found


def cpu_of(pids: Iterable[int]) -> dict[int, float]:
    return {pid: cpu_s(pid) for pid in pids}


def pin(core: int) -> None:
    """Every thread of this process."""
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):
            os.sched_setaffinity(int(thread), {core})


def go_first(pid: int) -> None:
    """Give a process that leads a session precedence over other work, if $BENCHMARK_NICE says so.

    With autogroups the weight between sessions is the session's nice value, not the process's. Needs root.
    """
    nice = os.environ.get("BENCHMARK_NICE")
    if nice:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, pid, int(nice))
            Path(f"/proc/{pid}/autogroup").write_text(nice)


def has_bf16() -> bool:
    """Whether the CPU multiplies bf16 by itself; elsewhere it would be emulated."""
    try:
        return bool(re.search(r"\b(avx512_bf16|amx_bf16|bf16)\b", Path("/proc/cpuinfo").read_text()))
    except OSError:
        return False


def describe() -> str:
    model = "unknown CPU"
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return f"{os.cpu_count()} × {model}, Linux {platform.release()}, Python {platform.python_version()}"
