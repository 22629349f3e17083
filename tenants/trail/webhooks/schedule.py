"""Decides when a delivery is due and what follows from its answer. Pure: no clock, no network."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

MAX_ATTEMPTS = 8
FIRST_DELAY_S = 5.0
GROWTH = 4.0
"""5 s, 20 s, 80 s … 5.7 h: an event is given up after 5 to 8 hours."""
GONE = 410


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: a status, or the reason why there is none."""

    status: int | None
    error: str = ""
    took_ms: int = 0
    body: bytes = b""
    """The beginning of the answer's body, for whoever asked for it."""

    @property
    def is_success(self) -> bool:
        return self.status is not None and 200 <= self.status < 300

    def sentence(self) -> str:
        return self.error or f"It answered with status {self.status}."


@dataclass(frozen=True, slots=True)
class Delivered:
    """The next event's turn."""


@dataclass(frozen=True, slots=True)
class Retry:
    """The same event once more, not before `at`."""

    at: datetime


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Into the dead letters; the next event's turn."""


@dataclass(frozen=True, slots=True)
class Pause:
    """The receiver wants nothing any more (410, as Standard Webhooks says)."""


def is_due(
    *, is_paused: bool, next_attempt_at: datetime, leased_until: datetime | None, now: datetime
) -> bool:
    """Whether anything may be sent now: nobody else is sending and no back-off runs."""
    return not is_paused and next_attempt_at <= now and (leased_until is None or leased_until <= now)


def verdict(
    answer: Answer, failed_before: int, now: datetime, share: float
) -> Delivered | Retry | GiveUp | Pause:
    """`failed_before` attempts of this event failed; `share` (0 to 1) is where in the jitter the wait lies."""
    if answer.is_success:
        return Delivered()
    if answer.status == GONE:
        return Pause()
    failed = failed_before + 1
    return GiveUp() if failed >= MAX_ATTEMPTS else Retry(now + delay(failed, share))


def delay(failed: int, share: float) -> timedelta:
    """Exponential back-off with equal jitter: half of the wait is certain, half is drawn."""
    whole_s = FIRST_DELAY_S * GROWTH ** (failed - 1)
    return timedelta(seconds=whole_s * (0.5 + share / 2))
