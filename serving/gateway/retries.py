"""May a lost request be tried again? Pure: counters and the clock are arguments.

A token bucket per version that only traffic fills (Finagle's retry budget, with its window): each request
sent is worth a tenth of a retry, so that a replica that dies again and again cannot double the load of
the ones that are left. The reserve is there for the first failure of a quiet gateway. Both together:

    retries since the start  ≤  64 + 10 % of the requests sent
    saved at any time        ≤  64, or 10 % of the requests of the last ten seconds where that is more

One of two replicas killed under load loses what is in flight there, which is half of rate × latency: up to
a latency of two seconds that fits into a tenth of ten seconds' traffic, and up to 64 requests always.
"""

from __future__ import annotations

from collections import deque

SHARE = 0.1
RESERVE = 64
WINDOW_S = 10.0


class RetryBudget:
    """What one version may still retry. `sent` counts the requests ever sent there, retries excluded."""

    __slots__ = ("_balance", "_marks", "_seen", "refused", "spent")

    def __init__(self) -> None:
        self._balance = float(RESERVE)
        self._seen = 0
        self._marks: deque[tuple[float, int]] = deque()
        self.spent = 0
        """Retries that were allowed."""
        self.refused = 0

    def observe(self, sent: int, now: float) -> None:
        """Note the traffic so far; called about once a second."""
        while self._marks and self._marks[0][0] < now - WINDOW_S:
            self._marks.popleft()
        self._marks.append((now, sent))
        self._deposit(sent)

    def left(self, sent: int) -> int:
        """Whole retries that would be allowed now."""
        self._deposit(sent)
        return int(self._balance + 1e-9)

    def take(self, sent: int) -> bool:
        """Spend one retry, unless the budget is empty."""
        if self.left(sent) < 1:
            self.refused += 1
            return False
        self._balance -= 1.0
        self.spent += 1
        return True

    def _deposit(self, sent: int) -> None:
        recent = sent - (self._marks[0][1] if self._marks else 0)
        most = max(float(RESERVE), SHARE * recent)
        self._balance = min(most, self._balance + SHARE * (sent - self._seen))
        self._seen = sent
