"""Open sums of usage in memory-mapped files, which outlive a process that is killed.

Two files take turns. A *generation* of sums grows in one of them until it is handed over under a number of its
own; only when that was delivered is its file used again. Whoever starts after a kill reads both files and hands
over what is there under the same numbers, so that each sum is counted once: a report's (process, sequence) is
applied only once. A machine that loses power may lose the last seconds all the same: nothing is synced.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from serving.prices import PARTS_PER_MICRO

SLOT_BYTES = 512
SLOTS = 4096
"""Accounts × minutes of one generation; more are counted in memory alone."""
COUNTS = 9
"""64-bit numbers of a slot: `Used` says which."""
Cells = memoryview | list[int]
"""The counts of one account: those of a file, or a list where there is none."""
_HEAD = struct.Struct("<8sqqH")
_MAGIC = b"tgusage2"
_FORMER_MAGIC, _FORMER_COUNTS = b"tgusage1", 7
"""Of a release that kept device time and one price per account, and no sum of money."""
_COUNTS_BYTES = 8 * COUNTS
_NAME = struct.Struct("<H")
_NAME_ROOM = SLOT_BYTES - _COUNTS_BYTES - _NAME.size


class Slot(NamedTuple):
    """One account's sums of one minute as they were found."""

    identity: list[str]
    counts: list[int]


class Generation(NamedTuple):
    process: str
    number: int
    slots: list[Slot]


class JournalFile:
    """Raises `OSError` when the file cannot be made."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            size_bytes = SLOT_BYTES * (SLOTS + 1)
            os.ftruncate(descriptor, size_bytes)
            # A store to a hole of a mapped file kills the process when the disk is full.
            os.posix_fallocate(descriptor, 0, size_bytes)
            self._map = mmap.mmap(descriptor, 0)
        finally:
            os.close(descriptor)
        self._view = memoryview(self._map)

    def found(self) -> Generation | None:
        """What an earlier process left, None when that is nothing or not ours."""
        magic, number, used, length = _HEAD.unpack_from(self._map)
        if magic not in (_MAGIC, _FORMER_MAGIC) or not 0 < used <= SLOTS or length > SLOT_BYTES - _HEAD.size:
            return None
        process = self._map[_HEAD.size : _HEAD.size + length].decode()
        if magic == _FORMER_MAGIC:
            slots = [
                Slot(identity, _converted(counts)) for identity, counts in self._slots(used, _FORMER_COUNTS)
            ]
        else:
            slots = list(self._slots(used, COUNTS))
        return Generation(process, number, slots)

    def begin(self, process: str, number: int) -> None:
        """Forget what was there."""
        name = process.encode()
        # Emptied before it is renamed: whoever reads in between must not see old sums under a new number.
        self._use(0)
        self._map[: _HEAD.size + len(name)] = _HEAD.pack(_MAGIC, number, 0, len(name)) + name

    def add(self, identity: list[str]) -> Cells | None:
        """The counts of a new account, all zero; None when there is no room."""
        used = self._used()
        name = msgspec.json.encode(identity)
        if used >= SLOTS or len(name) > _NAME_ROOM:
            return None
        at = SLOT_BYTES * (used + 1)
        self._map[at : at + _COUNTS_BYTES] = bytes(_COUNTS_BYTES)
        _NAME.pack_into(self._map, at + _COUNTS_BYTES, len(name))
        start = at + _COUNTS_BYTES + _NAME.size
        self._map[start : start + len(name)] = name
        self._use(used + 1)  # last, so that a slot is whole when it counts
        return self._view[at : at + _COUNTS_BYTES].cast("q")

    def _slots(self, used: int, counts: int) -> Iterator[Slot]:
        for at in range(SLOT_BYTES, SLOT_BYTES * (used + 1), SLOT_BYTES):
            end = at + 8 * counts
            (length,) = _NAME.unpack_from(self._map, end)
            start = end + _NAME.size
            identity = msgspec.json.decode(self._map[start : start + length], type=list[str])
            yield Slot(identity, list(self._view[at:end].cast("q")))

    def _used(self) -> int:
        return int(_HEAD.unpack_from(self._map)[2])

    def _use(self, count: int) -> None:
        struct.pack_into("<q", self._map, 16, count)


def _converted(counts: list[int]) -> list[int]:
    """Counts of the former release, whose last one was the price of a device-hour."""
    *kept, device_us, price = counts
    return [*kept, device_us, 0, *divmod(device_us * price, PARTS_PER_MICRO)]
