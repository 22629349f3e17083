"""How much the device holds, learnt from the batches that did not fit."""

from __future__ import annotations

PROBE_AFTER_S = 60.0
"""Without a failure for so long, batches may grow by a step again."""
_MOST_PROBE_AFTER_S = 3600.0
_STEP = 1.25
_FORGET_FACTOR = 2.0


class MemoryCap:
    """The largest batch, in tokens, that is believed to fit; infinite until one did not.

    A failure lowers it to half the size that failed, or to what fitted since the failure before: one odd
    input among many must not shrink every batch. It is raised by a quarter per quiet minute and forgotten
    at twice the size that failed. Every further failure doubles the time to the next step, up to an hour:
    what else lives on the device may have left, or may not.
    """

    def __init__(self) -> None:
        self._tokens = float("inf")
        self._fitted_tokens = self._failed_tokens = 0
        self._pause_s = PROBE_AFTER_S
        self._probe_at = float("inf")

    def fitted(self, tokens: int) -> None:
        """A batch of so many tokens ran."""
        if tokens > self._fitted_tokens:
            self._fitted_tokens = tokens

    def failed(self, tokens: int, now: float) -> None:
        """A batch of so many tokens ran out of memory; one beyond the limit (a large work alone) is no news."""
        if tokens > self.tokens(now):
            return
        if self._failed_tokens:
            self._pause_s = min(_MOST_PROBE_AFTER_S, 2.0 * self._pause_s)
        self._failed_tokens = tokens
        self._tokens = max(1.0, tokens / 2.0, min(self._fitted_tokens, tokens - 1))
        self._fitted_tokens = 0
        self._probe_at = now + self._pause_s

    def tokens(self, now: float) -> float:
        """At least 1. Looking is what probes: a step for every pause that passed since the last look."""
        while now >= self._probe_at and self._failed_tokens:
            self._tokens *= _STEP
            self._probe_at += self._pause_s
            if self._tokens > _FORGET_FACTOR * self._failed_tokens:
                self._forget()
        return self._tokens

    def _forget(self) -> None:
        self._tokens, self._failed_tokens = float("inf"), 0
        self._pause_s, self._probe_at = PROBE_AFTER_S, float("inf")
