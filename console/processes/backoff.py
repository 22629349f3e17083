"""How long to wait before a dead process is started again. Pure: `now` is an argument, in seconds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Backoff:
    """The first restart comes quickly, a crash loop slows down, a stable process is forgiven."""

    first_s: float = 0.1
    ceiling_s: float = 15.0
    stable_after_s: float = 30.0
    failures: int = 0

    def delay_s(self, lived_s: float) -> float:
        """Seconds to wait after a death that came `lived_s` after the start."""
        if lived_s >= self.stable_after_s:
            self.failures = 0
        self.failures += 1
        return min(self.ceiling_s, self.first_s * 2.0 ** min(self.failures - 1, 16))
