"""A batch while it is being filled: what still fits, and why it was closed."""

from __future__ import annotations

from collections.abc import Iterable

from serving.contract import CloseReason
from serving.scheduling.work import Work


class Draft:
    """The first work always fits, however large: nothing may wait for a batch that can never be built."""

    def __init__(self, row_limit: int, token_limit: float) -> None:
        self.works: list[Work] = []
        self.rows = 0
        self.tokens = 0
        self.row_limit = row_limit
        self.token_limit = token_limit
        self._has_turned_away = False
        self._is_solo = False

    @property
    def is_full(self) -> bool:
        return self._is_solo or self.rows >= self.row_limit or self.tokens >= self.token_limit

    def fits(self, work: Work) -> bool:
        if not self.works:
            return True
        is_fitting = (
            not (self._is_solo or work.is_suspect)
            and self.rows + work.rows <= min(self.row_limit, work.max_batch_size)
            and self.tokens + work.tokens <= self.token_limit
        )
        self._has_turned_away = self._has_turned_away or not is_fitting
        return is_fitting

    def add(self, work: Work) -> None:
        self.works.append(work)
        self.rows += work.rows
        self.tokens += work.tokens
        self.row_limit = min(self.row_limit, work.max_batch_size)
        self._is_solo = self._is_solo or work.is_suspect

    def close_reason(self, now: float, *, is_urgent: bool, is_draining: bool) -> CloseReason:
        if is_draining:
            return "drain"
        if self.is_full or self._has_turned_away:
            return "full"
        if is_urgent:
            return "due"
        return "window" if _has_waited(self.works, now) else "idle"


def _has_waited(works: Iterable[Work], now: float) -> bool:
    return any(work.max_wait_s > 0.0 and now >= work.arrived + work.max_wait_s for work in works)
