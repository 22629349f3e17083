"""What the queues in front of a work will take: the figures behind admission, expiry and batch limits."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from serving.scheduling.admission import Outlook
from serving.scheduling.backlog import Backlog
from serving.scheduling.cost import CostModel
from serving.scheduling.fairness import Account, Fairness, Load
from serving.scheduling.policy import Policy
from serving.scheduling.sizing import Limits, Sizing
from serving.scheduling.work import LOWER, Batch, Lane, Work


class Forecast:
    """What waits and runs on one replica, and how long that is predicted to take. Times in seconds."""

    def __init__(
        self,
        cost: CostModel,
        sizing: Sizing,
        fairness: Fairness,
        policy: Policy,
        *,
        max_batch_rows: int,
        can_yield: bool,
    ) -> None:
        self.backlogs: dict[Lane, Backlog] = {lane: Backlog() for lane in LOWER}
        self.loads: dict[Lane, Load] = {lane: Load() for lane in LOWER}
        self._longest_s: dict[Lane, float] = dict.fromkeys(LOWER, 0.0)
        """The longest work ever queued, alone: how far ahead of its deadline one may be lost already."""
        self.running: list[Batch] = []
        """The batch on the device last; those it interrupted before it."""
        self._cost = cost
        self._sizing = sizing
        self._fairness = fairness
        self._least_share: dict[Lane, float] = {
            "interactive": 1.0,
            "standard": policy.standard_min_share,
            "batch": policy.batch_min_share,
        }
        self._max_batch_rows = max_batch_rows
        self._can_yield = can_yield
        self.queued_rows = 0
        self._queued_tokens = 0
        self._bound_of: Limits | None = None
        self._bound_s = (0.0, 0.0, 0.0)
        self._largest_s = 0.0
        """No batch is made larger; a single work may be."""

    def backlog_s(self, now: float) -> float:
        """Until everything queued and running is done."""
        return sum(self._lane_s(lane, now) for lane in self.backlogs) + self._running_s(now)

    def token_limit(self, lane: Lane, now: float) -> float:
        """The size of the lane's next batch."""
        if lane == "interactive":
            return self._sizing.urgent_tokens(now, self._device_s("interactive"))
        return self._sizing.bulk_tokens(now, self._device_s("standard"))

    def _device_s(self, lane: Lane) -> float:
        """What waits in the lane, as one batch."""
        backlog = self.backlogs[lane]
        return self._cost.predict_s(backlog.rows, backlog.tokens)

    def late(self, lane: Lane, now: float) -> list[Work]:
        """Candidates for `late_by_needing_s`, earliest deadline first."""
        backlog = self.backlogs[lane]
        self._refresh_bounds(now)
        if not backlog.is_any_due(now + max(self._largest_s, self._longest_s[lane])):
            return []
        horizon_s = self._full_batch_s(lane, now) or self._longest_s[lane]
        if not backlog.is_any_due(now + horizon_s):
            return []
        return sorted(backlog.due(now + horizon_s), key=lambda work: work.deadline)

    def late_by_needing_s(self, work: Work, now: float) -> float | None:
        """Device time that makes a work late: alone, or in the full batch that an overloaded lane builds."""
        if work.latest_start < now:
            return self._cost.predict_s(work.rows, work.tokens)
        full_s = self._full_batch_s(work.lane, now)
        return full_s if full_s is not None and work.deadline < now + full_s else None

    def entered(self, work: Work, alone_s: float, now: float) -> None:
        self.backlogs[work.lane].add(work)
        self.queued_rows += work.rows
        self._queued_tokens += work.tokens
        work.latest_start = work.deadline - alone_s
        if work.latest_start < now or not self._cost.is_trusted:
            work.latest_start = work.deadline
        if alone_s > self._longest_s[work.lane]:
            self._longest_s[work.lane] = alone_s

    def left(self, works: Sequence[Work], rows: int, tokens: int) -> None:
        """These works, of so many rows and tokens together, wait no longer."""
        for work in works:
            self.backlogs[work.lane].remove(work)
        self.queued_rows -= rows
        self._queued_tokens -= tokens

    def is_surely_in_time(self, work: Work, alone_s: float, now: float) -> bool:
        """Whether even a bound above `outlook`, at a fraction of its cost, is within the deadline.

        A queue of R rows and T tokens makes at most `T / limit + R / max_batch_rows + 1` batches.
        """
        self._refresh_bounds(now)
        base_s, row_s, token_s = self._bound_s
        ahead_s = base_s + row_s * self.queued_rows + token_s * self._queued_tokens
        for batch in self.running:
            ahead_s += batch.predicted_s
        return now + alone_s + ahead_s / self._least_share[work.lane] < work.deadline

    def _refresh_bounds(self, now: float) -> None:
        limits = self._sizing.limits_at(now)
        if limits is not self._bound_of:
            self._bound_of, self._bound_s = limits, self._bound(limits)
            self._largest_s = self._cost.predict_s(self._max_batch_rows, int(limits.efficient))

    def _bound(self, limits: Limits) -> tuple[float, float, float]:
        """Seconds for three queues of any kind, and more for each row and each token in them."""
        batch_s = self._cost.predict_s(self._max_batch_rows, 0)
        token_s = self._cost.marginal_s(0, 1)
        smallest = min(limits.bulk, limits.urgent)
        return 3.0 * batch_s, batch_s / self._max_batch_rows, batch_s / smallest + 2.0 * token_s

    def _full_batch_s(self, lane: Lane, now: float) -> float | None:
        """How long the lane's next batch takes if enough waits to fill it, else None."""
        backlog = self.backlogs[lane]
        if backlog.rows <= 1 or not self._cost.is_trusted:
            return None
        tokens = min(self.token_limit(lane, now), self._tokens_in_full_rows(backlog))
        return self._cost.predict_s(self._max_batch_rows, int(tokens)) if backlog.tokens > tokens else None

    def _tokens_in_full_rows(self, backlog: Backlog) -> float:
        return self._max_batch_rows * backlog.tokens / max(1, backlog.rows)

    def outlook(self, work: Work, account: Account, alone_s: float, queued_total: int, now: float) -> Outlook:
        return Outlook(
            ahead_s=self._ahead_s(work, account, now),
            alone_s=alone_s,
            queued=account.waiting[work.sla_class],
            queued_total=queued_total,
        )

    def _ahead_s(self, work: Work, account: Account, now: float) -> float:
        """What goes first: the running batch, the lanes above, and in a fair lane the tenant's turn."""
        if work.lane == "interactive":
            rows, tokens = self.backlogs["interactive"].before(work.deadline)
            return self._until_pause_s(now) + self._queue_s("interactive", rows, tokens, now)
        ahead_s = self._running_s(now) + self._lane_s("interactive", now)
        if work.lane == "batch":
            ahead_s += self._lane_s("standard", now)
        own = account.backlogs[work.lane]
        own_s = self._queue_s(work.lane, own.rows, own.tokens, now) / self._fairness.share_of(account, now)
        return ahead_s + min(self._lane_s(work.lane, now), own_s) / self._left_for(work.lane, now)

    def _left_for(self, lane: Lane, now: float) -> float:
        """The part of the device that the lanes above leave, as of late."""
        left = 1.0 - self.loads["interactive"].share(now)
        if lane == "batch":
            left -= self.loads["standard"].share(now)
        return max(left, self._least_share[lane])

    def _queue_s(self, lane: Lane, rows: int, tokens: int, now: float) -> float:
        """Time to work off such a queue; one more work is answered with the last of its full batches."""
        if not rows:
            return 0.0
        limit = max(1.0, min(self.token_limit(lane, now), self._max_batch_rows * tokens / rows))
        if tokens < limit:
            return self._cost.predict_s(rows, tokens)
        return ceil(tokens / limit) * self._cost.predict_s(self._max_batch_rows, int(limit))

    def _lane_s(self, lane: Lane, now: float) -> float:
        backlog = self.backlogs[lane]
        return self._queue_s(lane, backlog.rows, backlog.tokens, now)

    def _until_pause_s(self, now: float) -> float:
        """Until the device takes urgent work: a running urgent batch ends, a bulk batch pauses."""
        wait_s = 0.0
        for batch in self.running:
            remainder_s = self._remainder_s(batch, now)
            can_pause = self._can_yield and not batch.is_urgent
            piece_s = batch.predicted_s / self._sizing.segments
            wait_s += min(remainder_s, piece_s) if can_pause else remainder_s
        return wait_s

    def _remainder_s(self, batch: Batch, now: float) -> float:
        return max(0.0, batch.predicted_s - (now - batch.picked - batch.interrupted_s))

    def _running_s(self, now: float) -> float:
        return sum(self._remainder_s(batch, now) for batch in self.running)
