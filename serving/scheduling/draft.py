"""A batch while it is being filled: what still fits, and why it was closed."""

from __future__ import annotations

from serving.contract import CloseReason
from serving.scheduling.work import Work


class Draft:
    """The first work always fits, however large: nothing may wait for a batch that can never be built."""

    __slots__ = (
        "_has_turned_away",
        "_is_solo",
        "is_full",
        "row_limit",
        "rows",
        "token_limit",
        "tokens",
        "works",
    )

    def __init__(self, row_limit: int, token_limit: float) -> None:
        self.works: list[Work] = []
        self.rows = 0
        self.tokens = 0
        self.row_limit = row_limit
        self.token_limit = token_limit
        self.is_full = False
        self._has_turned_away = False
        self._is_solo = False

    def offer(self, work: Work) -> bool:
        """Take the work if it fits; whether it did."""
        rows, tokens = self.rows + work.rows, self.tokens + work.tokens
        if self.works and (
            rows > self.row_limit
            or rows > work.max_batch_size
            or tokens > self.token_limit
            or work.is_suspect
            or self._is_solo
        ):
            self._has_turned_away = True
            return False
        self.works.append(work)
        self.rows, self.tokens = rows, tokens
        if work.max_batch_size < self.row_limit:
            self.row_limit = work.max_batch_size
        if work.is_suspect:
            self._is_solo = True
        if rows >= self.row_limit or tokens >= self.token_limit or work.is_suspect:
            self.is_full = True
        return True

    def limit(self, token_limit: float) -> None:
        """From now on at most so many tokens."""
        self.token_limit = token_limit
        self.is_full = self.is_full or self.tokens >= token_limit

    def close_reason(self, now: float, *, is_urgent: bool, is_draining: bool) -> CloseReason:
        if is_draining:
            return "drain"
        if self.is_full or self._has_turned_away:
            return "full"
        if is_urgent:
            return "due"
        return "window" if self._has_waited(now) else "idle"

    def _has_waited(self, now: float) -> bool:
        return any(work.max_wait_s > 0.0 and now >= work.arrived + work.max_wait_s for work in self.works)
