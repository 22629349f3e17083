"""How much waits, by deadline."""

from __future__ import annotations

from serving.scheduling.work import Work


class Backlog:
    """Rows and tokens queued by deadline, in slots of 10 ms: what runs before a given deadline."""

    _SLOT_S = 0.01

    def __init__(self) -> None:
        self._slots: dict[int, list[int]] = {}
        self.rows = 0
        self.tokens = 0

    def add(self, work: Work) -> None:
        self._count(work, 1)

    def remove(self, work: Work) -> None:
        self._count(work, -1)

    def before(self, deadline: float) -> tuple[int, int]:
        """Rows and tokens that are due no later than `deadline`."""
        last = self._slot(deadline)
        rows = tokens = 0
        for slot, (slot_rows, slot_tokens, _) in self._slots.items():
            if slot <= last:
                rows += slot_rows
                tokens += slot_tokens
        return rows, tokens

    def _slot(self, deadline: float) -> int:
        return int(min(deadline / self._SLOT_S, 2**62))

    def _count(self, work: Work, sign: int) -> None:
        slot = self._slots.setdefault(self._slot(work.deadline), [0, 0, 0])
        slot[0] += sign * work.rows
        slot[1] += sign * work.tokens
        slot[2] += sign
        self.rows += sign * work.rows
        self.tokens += sign * work.tokens
        if not slot[2]:
            del self._slots[self._slot(work.deadline)]
