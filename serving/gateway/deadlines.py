"""One timer for all requests of a gateway: a wheel of 20 ms slots instead of a timer per request."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")
TICK_S = 0.02
MAX_STREAM_S = 600.0
"""A streamed answer is given up this long after its first chunk."""


class Wheel(Generic[T]):
    """Items come out of `due` in the first call at or after their time, at most one tick late."""

    __slots__ = ("_next", "_slots")

    def __init__(self, now: float) -> None:
        self._slots: dict[int, set[T]] = {}
        self._next = int(now / TICK_S)

    def add(self, item: T, at: float) -> int:
        """The slot it lies in, for `remove`."""
        slot = int(at / TICK_S) + 1
        if slot < self._next:
            slot = self._next
        waiting = self._slots.get(slot)
        if waiting is None:
            self._slots[slot] = {item}
        else:
            waiting.add(item)
        return slot

    def remove(self, item: T, slot: int) -> None:
        """Forget an item before its time, so that it does not outlive its use by a whole deadline."""
        waiting = self._slots.get(slot)
        if waiting is not None:
            waiting.discard(item)

    def due(self, now: float) -> list[T]:
        last = int(now / TICK_S)
        if last - self._next > len(self._slots):
            slots = sorted(slot for slot in self._slots if slot <= last)
        else:
            slots = list(range(self._next, last + 1))
        out: list[T] = []
        for slot in slots:
            out += self._slots.pop(slot, ())
        self._next = max(self._next, last + 1)
        return out
