"""How big a batch may be, in tokens: derived from the cost curve and from who is active."""

from __future__ import annotations

from serving.contract import SlaClass
from serving.scheduling.cost import CostModel
from serving.scheduling.policy import Policy
from serving.scheduling.work import Work

_MOST_TARGETS = 64


class ActiveTargets:
    """The p95 targets of one class and when each was last asked for."""

    def __init__(self) -> None:
        self._seen: dict[float, float] = {}

    def saw(self, target_s: float, now: float) -> None:
        if target_s not in self._seen and len(self._seen) >= _MOST_TARGETS:
            del self._seen[min(self._seen, key=self._seen.__getitem__)]
        self._seen[target_s] = now

    def tightest(self, since: float) -> float | None:
        return min((target for target, seen in self._seen.items() if seen >= since), default=None)


class Sizing:
    """Token limits for the next batch. `segments` is the number of equal pieces a batch runs in."""

    def __init__(self, cost: CostModel, policy: Policy, *, can_yield: bool, segments: float) -> None:
        self._cost = cost
        self._policy = policy
        self._can_yield = can_yield
        self.segments = max(1.0, segments) if can_yield else 1.0
        self._targets: dict[SlaClass, ActiveTargets] = {
            "interactive": ActiveTargets(),
            "standard": ActiveTargets(),
        }
        self._urgent_s = 0.0

    def saw(self, work: Work, now: float) -> None:
        """An accepted arrival: its class is active from now on."""
        targets = self._targets.get(work.sla_class)
        if targets is not None:
            targets.saw(round(work.target, 4), now)
        if work.sla_class == "interactive":
            alone_s = self._cost.predict_s(work.rows, work.tokens)
            self._urgent_s += 0.1 * (alone_s - self._urgent_s)

    def ran(self, boundaries: int) -> None:
        """A batch that could be paused offered so many pauses."""
        if self._can_yield and boundaries:
            self.segments += 0.2 * (boundaries + 1 - self.segments)

    def target(self, sla_class: SlaClass, now: float) -> float | None:
        return self._targets[sla_class].tightest(now - self._policy.quiet_after_s)

    def bulk_tokens(self, now: float, backlog_s: float) -> float:
        """The throughput-optimal size, or less while an active target needs room.

        `backlog_s` of standard work waits: beyond its target only throughput helps.
        """
        limit = min(self._efficient(), self._policy.max_batch_tokens)
        standard_s = self.target("standard", now)
        if standard_s is not None and backlog_s <= standard_s:
            limit = min(limit, self._at_least(standard_s * self._policy.standard_share))
        interactive_s = self.target("interactive", now)
        if interactive_s is not None:
            limit = min(limit, self._beside_interactive(interactive_s))
        return self._guarded(limit)

    def urgent_tokens(self, now: float, backlog_s: float) -> float:
        """Small enough for the next urgent arrival; when `backlog_s` waits beyond the target, work it off."""
        target_s = self.target("interactive", now)
        limit = min(self._efficient(), self._policy.max_batch_tokens)
        if target_s is not None and backlog_s <= target_s:
            limit = min(limit, self._at_least(target_s * self._policy.urgent_share))
        return self._guarded(limit)

    def room_s(self, target_s: float) -> float:
        """How long a batch that cannot be paused may run so that urgent work behind it keeps its target."""
        room_s = target_s * self._policy.bound_share - self._urgent_s
        return room_s - self._cost.margin_s(max(room_s, 0.0))

    def _guarded(self, limit: float) -> float:
        """Smaller while predictions fail, but never so small that throughput collapses on top of it."""
        least = self._cost.efficient_tokens(self._policy.least_throughput_share)
        return max(1.0, min(limit, max(least, limit * self._cost.guard)))

    def _beside_interactive(self, target_s: float) -> float:
        if self._can_yield:
            return self._at_least(target_s * self._policy.pause_share * self.segments)
        return self._cost.tokens_within(self.room_s(target_s))

    def _at_least(self, seconds: float) -> float:
        least = self._cost.efficient_tokens(self._policy.least_throughput_share)
        return max(least, self._cost.tokens_within(seconds))

    def _efficient(self) -> float:
        return self._cost.efficient_tokens(self._policy.throughput_share)
