"""How big a batch may be, in tokens: derived from the cost curve and from who is active."""

from __future__ import annotations

from dataclasses import dataclass

from serving.contract import SlaClass
from serving.scheduling.cost import CostModel
from serving.scheduling.memory import MemoryCap
from serving.scheduling.policy import Policy
from serving.scheduling.work import Work

_MOST_TARGETS = 64
_REFRESH_S = 0.1


class ActiveTargets:
    """The p95 targets of one class and when each was last asked for."""

    def __init__(self) -> None:
        self._seen: dict[float, float] = {}

    def saw(self, target_s: float, now: float, quiet_after_s: float) -> bool:
        """Whether the target was not active before."""
        before = self._seen.get(target_s)
        if before is None and len(self._seen) >= _MOST_TARGETS:
            del self._seen[min(self._seen, key=self._seen.__getitem__)]
        self._seen[target_s] = now
        return before is None or now - before > quiet_after_s

    def tightest(self, since: float) -> float | None:
        return min((target for target, seen in self._seen.items() if seen >= since), default=None)


@dataclass(frozen=True, slots=True)
class Limits:
    """Tokens per batch, by what it is for, and the tightest active targets in seconds."""

    efficient: float
    bulk: float
    bulk_for_throughput: float
    urgent: float
    standard_s: float | None
    interactive_s: float | None


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
        self._changes = 0
        self._memory = MemoryCap()
        self._stamp = (-1, 0.0)
        """Batches learnt from plus changes seen here (both only grow), and when to look again."""
        self._limits = self._compute(0.0)

    def saw(self, work: Work, alone_s: float, now: float) -> None:
        """An accepted arrival: its class is active from now on."""
        targets = self._targets.get(work.sla_class)
        if targets is not None:
            target_s = work.target_s or round(work.target, 4)
            self._changes += targets.saw(target_s, now, self._policy.quiet_after_s)
        if work.sla_class == "interactive":
            self._urgent_s += 0.1 * (alone_s - self._urgent_s)

    def ran(self, tokens: int, boundaries: int) -> None:
        """A batch fitted the device and, if it could be paused, offered so many pauses."""
        self._memory.fitted(tokens)
        if self._can_yield and boundaries:
            self.segments += 0.2 * (boundaries + 1 - self.segments)

    def ran_out_of_memory(self, tokens: int, now: float) -> float:
        """A batch of so many tokens did not fit the device; the most a batch may hold from now on."""
        self._memory.failed(tokens, now)
        self._changes += 1
        return self._memory.tokens(now)

    def target(self, sla_class: SlaClass, now: float) -> float | None:
        return self._targets[sla_class].tightest(now - self._policy.quiet_after_s)

    def bulk_tokens(self, now: float, backlog_s: float) -> float:
        """The throughput-optimal size, or less while an active target needs room.

        `backlog_s` of standard work waits: beyond its target only throughput helps.
        """
        limits = self.limits_at(now)
        is_lost = limits.standard_s is not None and backlog_s > limits.standard_s
        return limits.bulk_for_throughput if is_lost else limits.bulk

    def urgent_tokens(self, now: float, backlog_s: float) -> float:
        """Small enough for the next urgent arrival; when `backlog_s` waits beyond the target, work it off."""
        limits = self.limits_at(now)
        is_lost = limits.interactive_s is None or backlog_s > limits.interactive_s
        return limits.efficient if is_lost else limits.urgent

    def limits_at(self, now: float) -> Limits:
        """Recomputed when a batch was learnt from, a target came or may have gone: not at every decision."""
        revision, refreshed = self._stamp
        if revision != self._cost.revision + self._changes or now >= refreshed:
            self._stamp = (self._cost.revision + self._changes, now + _REFRESH_S)
            self._limits = self._compute(now)
        return self._limits

    def _compute(self, now: float) -> Limits:
        policy, cap = self._policy, self._memory.tokens(now)

        def guarded(limit: float) -> float:
            return min(cap, self._guarded(limit))

        efficient = min(self._cost.efficient_tokens(policy.throughput_share), policy.max_batch_tokens)
        standard_s, interactive_s = self.target("standard", now), self.target("interactive", now)
        bulk = urgent = efficient
        if interactive_s is not None:
            bulk = min(bulk, self._beside_interactive(interactive_s))
            urgent = min(urgent, self._at_least(interactive_s * policy.urgent_share))
        beside_standard = bulk
        if standard_s is not None:
            beside_standard = min(bulk, self._at_least(standard_s * policy.standard_share))
        return Limits(
            efficient=guarded(efficient),
            bulk=guarded(beside_standard),
            bulk_for_throughput=guarded(bulk),
            urgent=guarded(urgent),
            standard_s=standard_s,
            interactive_s=interactive_s,
        )

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
