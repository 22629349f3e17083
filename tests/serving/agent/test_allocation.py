"""A worker's heap lies on huge pages where the machine has them, unless the operator decided otherwise."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from serving.agent.launchers.allocation import allocation

HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
LOOK = """
blocks = [bytearray(8 << 20) for _ in range(4)]
smaps = open("/proc/self/smaps").read()
print(smaps[smaps.index("[heap]"):].split("VmFlags:")[1].splitlines()[0])
"""


def _can_ask() -> bool:
    name, version = platform.libc_ver()
    is_new = name == "glibc" and tuple(map(int, version.split(".")[:2])) >= (2, 35)
    return is_new and HUGE_PAGES.exists() and "[madvise]" in HUGE_PAGES.read_text()


def test_what_the_operator_set_is_left_alone():
    assert allocation({"GLIBC_TUNABLES": "glibc.malloc.check=1"}) == {}


@pytest.mark.skipif(not _can_ask(), reason="needs glibc 2.35 and huge pages on request")
def test_the_heap_asks_for_huge_pages():
    environ = {name: value for name, value in os.environ.items() if name != "GLIBC_TUNABLES"}
    ran = subprocess.run(
        [sys.executable, "-c", LOOK],
        env=environ | allocation(environ),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "hg" in ran.stdout.split()
