"""Bounded log files: copied away and truncated in place, since their writers keep them open (append mode)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

MAX_BYTES = 16 << 20
KEPT = 3


def rotate_when_large(path: Path, max_bytes: int = MAX_BYTES, kept: int = KEPT) -> bool:
    """`x.log` → `x.log.1` … `x.log.3`. Lines written between copy and truncation are lost; logs are no ledger."""
    try:
        if path.stat().st_size <= max_bytes:
            return False
    except FileNotFoundError:
        return False
    for number in range(kept - 1, 0, -1):
        older = path.with_name(f"{path.name}.{number}")
        if older.exists():
            older.replace(path.with_name(f"{path.name}.{number + 1}"))
    shutil.copy(path, path.with_name(f"{path.name}.1"))
    os.truncate(path, 0)
    return True
