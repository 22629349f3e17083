"""How much waits in one lane, by deadline, and what of it is about to miss its deadline."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

from serving.scheduling.work import Work

_SLOT_S = 0.01
_NEVER = 2**62


class _Slot:
    """Works due within the same 10 ms."""

    __slots__ = ("count", "perishable", "rows", "tokens")

    def __init__(self) -> None:
        self.count = self.rows = self.tokens = 0
        self.perishable: dict[int, Work] = {}
        """Those that are refused rather than answered late."""


class Backlog:
    """Adding and removing is O(1) (O(log slots) for the first of a slot); nothing dead stays behind."""

    def __init__(self) -> None:
        self._slots: dict[int, _Slot] = {}
        self._order: list[int] = []
        """Heap of slot numbers; emptied slots leave it when they surface."""
        self.rows = 0
        self.tokens = 0

    def add(self, work: Work) -> None:
        rows, tokens = work.rows, work.tokens
        number = _slot_of(work.deadline)
        slot = self._slots.get(number)
        if slot is None:
            slot = self._slots[number] = _Slot()
            heappush(self._order, number)
        slot.count += 1
        slot.rows += rows
        slot.tokens += tokens
        if work.late_policy == "refuse":
            slot.perishable[work.id] = work
        self.rows += rows
        self.tokens += tokens

    def remove(self, work: Work) -> None:
        rows, tokens = work.rows, work.tokens
        number = _slot_of(work.deadline)
        slot = self._slots[number]
        slot.count = count = slot.count - 1
        self.rows -= rows
        self.tokens -= tokens
        if not count:
            del self._slots[number]
            self._trim()
            return
        slot.rows -= rows
        slot.tokens -= tokens
        slot.perishable.pop(work.id, None)

    def before(self, deadline: float) -> tuple[int, int]:
        """Rows and tokens that are due no later than `deadline`."""
        last = _slot_of(deadline)
        rows = tokens = 0
        for number, slot in self._slots.items():
            if number <= last:
                rows += slot.rows
                tokens += slot.tokens
        return rows, tokens

    def is_any_due(self, by: float) -> bool:
        """Whether something may be due before `by`: cheap, asked at every decision."""
        return bool(self._order) and self._order[0] <= _slot_of(by)

    def due(self, by: float) -> Iterator[Work]:
        """Perishable works due before `by`. Finish the iteration before anything is removed."""
        last = _slot_of(by)
        for number, slot in self._slots.items():
            if number <= last:
                yield from (work for work in slot.perishable.values() if work.deadline < by)

    def _trim(self) -> None:
        """Drop numbers of emptied slots from the top; all of them when they outnumber the slots."""
        order, slots = self._order, self._slots
        while order and order[0] not in slots:
            heappop(order)
        if len(order) > 2 * len(slots) + 64:
            self._order = sorted(slots)


class Amount:
    """Rows and tokens of one tenant in one lane."""

    __slots__ = ("rows", "tokens")

    def __init__(self) -> None:
        self.rows = self.tokens = 0


def _slot_of(at: float) -> int:
    return int(at / _SLOT_S) if at < _NEVER else _NEVER
