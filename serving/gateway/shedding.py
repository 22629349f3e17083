"""Which classes are turned away under overload: `batch` first, then `standard`, `interactive` never.

Pure: what is in flight and the clock are arguments. Two pressures, each with hysteresis:

- **The gateway itself** nears the number of requests it can hold: from 80 % it takes no more batch work, from
  90 % no more standard work, and interactive work until it is full.
- **A version** cannot keep up with a class: the work that goes before or with that class, on its replicas
  together, is predicted to take longer than the class's deadlines allow. Then the classes below it are shed:
  the shares of the device that the scheduler promises them are what the higher class lacks. The
  largest tenant is left out of the sum, the longest deadline is the bar, and a class with a single tenant
  asks for nothing: so nobody's flood turns away another tenant's work. What one tenant sends beyond its
  share is the scheduler's business.

A class is never admitted while a higher one is shed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from serving.contract import SlaClass

CLASSES: tuple[SlaClass, ...] = ("batch", "standard", "interactive")
"""Lowest first."""
RANK: dict[SlaClass, int] = {sla_class: rank for rank, sla_class in enumerate(CLASSES)}
FULL_SHARES = (0.8, 0.9, 1.0)
"""By rank: the share of the gateway's room that a class may fill."""
RELIEF_SHARE = 0.1
"""A class is admitted again when so much more is free than when it was shed."""
RELIEF_WORK = 0.5
"""A version's work has to fall to this share of what started the shedding."""
LEAST_S = 1.0
"""Whatever is shed stays shed for so long."""


class Headroom:
    """How many requests of each class this gateway may hold. `limits` are looked up for every request."""

    __slots__ = ("_most", "limits")

    def __init__(self, most: int) -> None:
        self._most = most
        self.limits = tuple(int(most * share) for share in FULL_SHARES)

    def update(self, in_flight: int) -> None:
        """Called every tick: a class that is shed now stays so until there is some relief."""
        self.limits = tuple(
            int(self._most * self._share(rank, in_flight)) for rank in range(len(FULL_SHARES))
        )

    def _share(self, rank: int, in_flight: int) -> float:
        share = FULL_SHARES[rank]
        if rank == len(FULL_SHARES) - 1:
            return share
        is_shed = in_flight >= self.limits[rank]
        return share - RELIEF_SHARE if is_shed else share


class Waiting(NamedTuple):
    """One request in flight, as far as shedding looks at it."""

    rank: int
    tenant_id: str
    predicted_us: int
    deadline_s: float


class Pressure(NamedTuple):
    """Why the classes below `rank` are shed."""

    rank: int
    work_s: float
    """Predicted work per replica that goes before or with the class, without the largest tenant's."""
    deadline_s: float
    """The longest among the class's requests in flight."""


NONE = Pressure(0, 0.0, 0.0)


@dataclass(slots=True)
class _Class:
    deadline_s: float = 0.0
    work_us: dict[str, int] = field(default_factory=dict)


def pressure(waiting: Iterable[Waiting], replicas: int, share: float = 1.0) -> Pressure:
    """The highest class whose deadlines the work before it exceeds; `share` lowers the bar."""
    classes = tuple(_Class() for _ in CLASSES)
    for one in waiting:
        mine = classes[one.rank]
        mine.deadline_s = max(mine.deadline_s, one.deadline_s)
        mine.work_us[one.tenant_id] = mine.work_us.get(one.tenant_id, 0) + one.predicted_us
    work_us: dict[str, int] = {}
    for rank in range(len(CLASSES) - 1, 0, -1):
        mine = classes[rank]
        for tenant_id, more_us in mine.work_us.items():
            work_us[tenant_id] = work_us.get(tenant_id, 0) + more_us
        if len(mine.work_us) < 2:
            continue
        work_s = (sum(work_us.values()) - max(work_us.values())) / 1e6 / max(1, replicas)
        if work_s > mine.deadline_s * share:
            return Pressure(rank, work_s, mine.deadline_s)
    return NONE


class VersionShedding:
    """What one version sheds now. `rank` is looked up for every request: lower ones are turned away."""

    __slots__ = ("_now", "_since", "rank")

    def __init__(self) -> None:
        self.now = NONE
        self._since = 0.0

    @property
    def now(self) -> Pressure:
        return self._now

    @now.setter
    def now(self, pressure: Pressure) -> None:
        self._now, self.rank = pressure, pressure.rank

    def update(self, waiting: list[Waiting], replicas: int, now: float) -> None:
        """Called a few times a second with everything in flight at the version."""
        found = pressure(waiting, replicas)
        if found.rank >= self.now.rank:
            if found.rank > self.now.rank:
                self._since = now
            self.now = found
        elif now - self._since >= LEAST_S:
            relieved = pressure(waiting, replicas, RELIEF_WORK)
            if relieved.rank < self.now.rank:
                self.now, self._since = max(found, relieved), now
