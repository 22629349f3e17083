"""What this gateway knows of one deployed version: who accepts, how well they do, what it sheds and retries."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from serving.contract import VersionEntry
from serving.gateway.breaker import admitting
from serving.gateway.retries import RetryBudget
from serving.gateway.shedding import CLASSES, VersionShedding, Waiting
from serving.telemetry.resilience import ReplicaRow, VersionRow

if TYPE_CHECKING:
    from serving.gateway.replicas import Replica

UNKNOWN_LOAD_S = 5.0
"""Retry-After while no start of the version was seen yet."""
LONGEST_LOAD_S = 600.0
STREAMS_REMEMBERED = 8
LEAST_WORK_US = 50_000
"""Less predicted work per replica is no overload whatever its deadlines; it is not even looked at."""


class ServedVersion:
    """One per version that has replicas in the configuration."""

    __slots__ = (
        "_gone_at",
        "_load_s",
        "accepting",
        "budget",
        "fallbacks",
        "is_troubled",
        "replicas",
        "sent",
        "shedding",
        "stream_us",
    )

    def __init__(self) -> None:
        self.replicas: list[Replica] = []
        self.accepting: list[Replica] = []
        self.is_troubled = False
        """Some replica's breaker is not calm: choosing has to ask them."""
        self.sent = 0
        """Requests ever sent, retries excluded."""
        self.stream_us = 0
        """Device time of a streamed answer, averaged over the last few: more than the cost curve foresees."""
        self.budget = RetryBudget()
        self.shedding = VersionShedding()
        self.fallbacks: dict[str, int] = {}
        """Requests that something else answered instead, by reason."""
        self._gone_at: float | None = None
        self._load_s = UNKNOWN_LOAD_S

    def choose(self, tenant_id: str) -> Replica | None:
        """Power of two choices by predicted outstanding work (Mitzenmacher 2001), where breakers allow it."""
        among = self.accepting
        if self.is_troubled:
            places = admitting([replica.breaker for replica in among], tenant_id, time.monotonic())
            among = [among[place] for place in places]
        count = len(among)
        if count <= 1:
            return among[0] if among else None
        first = int(random.random() * count)
        second = (first + 1 + int(random.random() * (count - 1))) % count
        one, other, stream_us = among[first], among[second], self.stream_us
        one_us = one.outstanding_us + one.streams * stream_us
        return one if one_us <= other.outstanding_us + other.streams * stream_us else other

    def streamed(self, device_us: int) -> None:
        """A streamed answer came to its end."""
        self.stream_us += (device_us - self.stream_us) // STREAMS_REMEMBERED

    def circuit_wait_s(self, tenant_id: str, now: float) -> float:
        """Until the first replica that accepts may be tried by this tenant."""
        return min((replica.breaker.wait_s(tenant_id, now) for replica in self.accepting), default=0.0)

    def set_accepting(self, accepting: list[Replica], now: float) -> None:
        """Somebody came or went; how long the version was gone predicts the next time."""
        self.accepting = accepting
        if not accepting:
            if self._gone_at is None:
                self._gone_at = now
        elif self._gone_at is not None:
            self._load_s = min(LONGEST_LOAD_S, now - self._gone_at)
            self._gone_at = None

    def fell_back(self, reason: str) -> None:
        self.fallbacks[reason] = self.fallbacks.get(reason, 0) + 1

    def retry_after_s(self, now: float) -> float:
        """When a replica of the version should be back, from how long it took before."""
        gone_s = 0.0 if self._gone_at is None else now - self._gone_at
        return max(0.5, self._load_s - gone_s)

    def every_second(self, now: float) -> None:
        """Let breakers calm down, and note the traffic."""
        self.budget.observe(self.sent, now)
        if self.is_troubled:
            for replica in self.replicas:
                replica.breaker.calm_down(now)
            self.is_troubled = not all(replica.breaker.is_calm for replica in self.replicas)

    def look_at_load(self, now: float) -> None:
        """Decide which classes are shed until the next look, and who is silent."""
        for replica in self.replicas:
            replica.look(now)
        count = max(1, len(self.accepting))
        work_us = sum(replica.outstanding_us for replica in self.replicas)
        if work_us > LEAST_WORK_US * count:
            self.shedding.update(list(self._waiting()), count, now)
        elif self.shedding.rank:
            self.shedding.update([], count, now)

    def report(self, version: VersionEntry, now: float) -> VersionRow:
        return VersionRow(
            version.model,
            str(version.number),
            retried=self.budget.spent,
            not_retried=self.budget.refused,
            retries_left=self.budget.left(self.sent),
            fallbacks=self.fallbacks,
            shed=CLASSES[: self.shedding.rank],
            replicas=tuple(_row(replica, now) for replica in self.replicas),
        )

    def _waiting(self) -> Iterable[Waiting]:
        for replica in self.replicas:
            for pending in replica.in_flight.values():
                lane = pending.lane
                yield Waiting(lane.rank, lane.tenant_id, pending.predicted_us, lane.deadline_s)


def _row(replica: Replica, now: float) -> ReplicaRow:
    breaker = replica.breaker
    return ReplicaRow(
        replica.spec.id,
        replica.is_accepting,
        int(breaker.state(now)),
        breaker.tenants_stopped(),
        breaker.opened,
    )
