"""Where a gateway's time goes: samples of its stack by `py-spy`, folded by function and by module.

`pip install py-spy` somewhere on PATH; without it the profile is left out. Needs the right to trace.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import msgspec

_FRAME = re.compile(r"(?P<function>.+) \((?P<file>[^:()]+)(?::\d+)?\)$")

_IDLE_POOL = "_worker (concurrent/futures/thread.py)"
"""Threads of a pool that wait for work look busy to a sampler."""


class Hotspot(msgspec.Struct):
    where: str
    share: float
    """Of all samples."""


class Profile(msgspec.Struct):
    samples: int
    functions: list[Hotspot]
    """By own time."""
    modules: list[Hotspot]
    """By own time; native code counts for the Python function that called it."""


def is_possible() -> bool:
    return shutil.which("py-spy") is not None


def record(pid: int, output: Path, seconds: int) -> subprocess.Popen[bytes]:
    """Start sampling; wait for the process, then `read` the output."""
    command = ["py-spy", "record", "--pid", str(pid), "--format", "raw", "--rate", "500", "--nolineno"]
    return subprocess.Popen(
        [*command, "--duration", str(seconds), "--output", str(output)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def read(output: Path, most: int = 25) -> Profile:
    """Fold collapsed stacks (`frame;frame;frame count`)."""
    functions: Counter[str] = Counter()
    modules: Counter[str] = Counter()
    for line in output.read_text().splitlines():
        stack, _, count = line.rpartition(" ")
        if _IDLE_POOL in stack:
            continue
        function, module = _leaf(stack.split(";"))
        functions[function] += int(count)
        modules[module] += int(count)
    total = sum(functions.values())
    return Profile(total, _hotspots(functions, total, most), _hotspots(modules, total, most))


def _leaf(frames: list[str]) -> tuple[str, str]:
    match = _FRAME.match(frames[-1])
    if match is None:
        return frames[-1], "native"
    return f"{match['function']} ({_short(match['file'])})", _short(match["file"])


def _short(file: str) -> str:
    """`site-packages/uvicorn/protocols/x.py` → `uvicorn/protocols/x.py`."""
    return re.sub(r"^.*?(site-packages|lib/python3\.\d+)/", "", file)


def _hotspots(counted: Counter[str], total: int, most: int) -> list[Hotspot]:
    return [Hotspot(where, round(count / max(1, total), 4)) for where, count in counted.most_common(most)]
