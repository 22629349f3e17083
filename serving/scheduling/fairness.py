"""Who is next: virtual counters in device-seconds, and how much of the device a tenant's urgency may take.

The counters follow Virtual Token Counter (Sheng et al., "Fairness in Serving Large Language Models",
OSDI 2024) with device time in the place of tokens: the tenant with the lowest weighted counter is served
first, and a tenant that comes back is lifted to the counters of those who stayed.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush, heappushpop
from itertools import count
from math import exp

from serving.contract import SlaClass
from serving.scheduling.backlog import Amount
from serving.scheduling.policy import Policy
from serving.scheduling.queues import EarliestFirst, FirstComeFirstServed
from serving.scheduling.work import LOWER, Lane, QueueShare, Work

_numbers = count()


class Account:
    """What the scheduler remembers of one tenant: its counter, its bucket, its two fair queues."""

    __slots__ = (
        "awaits_credit",
        "backlogs",
        "batch",
        "bucket_at",
        "bucket_s",
        "counter_s",
        "demoted",
        "held",
        "number",
        "owed_s",
        "queued",
        "running",
        "seen",
        "standard",
        "tenant_id",
        "waiting",
        "weight",
    )

    def __init__(self, tenant_id: str, now: float, policy: Policy) -> None:
        self.tenant_id = tenant_id
        self.number = next(_numbers)
        self.weight = 1.0
        self.counter_s = 0.0
        self.owed_s = 0.0
        """Charged too little (or, below zero, too much) so far: settled with the next charge."""
        self.bucket_s = policy.bucket_s
        self.bucket_at = self.seen = now
        self.standard = EarliestFirst()
        self.batch = FirstComeFirstServed(policy.lookahead)
        self.demoted = EarliestFirst()
        """Those of the standard queue that wait there for want of credit."""
        self.awaits_credit = False
        """Listed among those whose demoted works may be promoted."""
        self.backlogs: dict[Lane, Amount] = {lane: Amount() for lane in LOWER}
        self.waiting: dict[SlaClass, int] = dict.fromkeys(LOWER, 0)
        """Works queued by the class they came with (a demoted one still counts against its own class)."""
        self.queued = self.running = 0
        """Works."""
        self.held: dict[str, int] = {}
        """Works queued by the quota that bounds them; without those that are none."""

    @property
    def is_busy(self) -> bool:
        return bool(self.running or self.queued)

    def queue(self, work: Work) -> None:
        self.queued += 1
        self.waiting[work.sla_class] += 1
        for share in work.queue_shares:
            self.held[share.quota_id] = self.held.get(share.quota_id, 0) + 1
        amount = self.backlogs[work.lane]
        amount.rows += work.rows
        amount.tokens += work.tokens

    def unqueue(self, work: Work) -> None:
        self.queued -= 1
        self.waiting[work.sla_class] -= 1
        for share in work.queue_shares:
            left = self.held.pop(share.quota_id) - 1
            if left:
                self.held[share.quota_id] = left
        amount = self.backlogs[work.lane]
        amount.rows -= work.rows
        amount.tokens -= work.tokens

    def full_share(self, work: Work) -> QueueShare | None:
        """The first of the quotas on what waits that has no place left for the work."""
        held = self.held
        return next(
            (share for share in work.queue_shares if held.get(share.quota_id, 0) >= share.limit), None
        )

    def charge(self, device_s: float, weight: float) -> None:
        """Count predicted device time; what an earlier prediction got wrong is settled here."""
        amount = device_s / weight + self.owed_s
        if amount > 0.0:
            self.counter_s += amount
            amount = 0.0
        self.owed_s = amount

    def settle(self, charged_s: float, used_s: float, weight: float) -> None:
        self.owed_s += (used_s - charged_s) / weight


_Entry = tuple[float, int, Account]
"""Counter, number (ties go to the tenant that was here first), account."""


class FairLane:
    """Tenants with work of one class, lowest counter first. Counters only grow, so stale entries sink."""

    def __init__(self, queue_of: Callable[[Account], EarliestFirst | FirstComeFirstServed]) -> None:
        self._queue_of = queue_of
        self._heap: list[_Entry] = []
        self._listed: set[Account] = set()
        """Not by tenant: one that was forgotten and comes back has another account."""

    def enlist(self, account: Account) -> None:
        """Call after work was added to the account's queue of this lane."""
        if account not in self._listed:
            self._listed.add(account)
            heappush(self._heap, (account.counter_s, account.number, account))

    def lowest(self) -> Account | None:
        """Pop the account with waiting work and the lowest counter; `enlist` it again when done."""
        return self._current(heappop(self._heap)) if self._heap else None

    def after(self, account: Account) -> Account | None:
        """The next after `account`, which came from here, was served: often the same once more.

        The counters in the heap may be outdated, but never too high.
        """
        if not self._queue_of(account).live:
            return self.lowest()
        heap, counter_s = self._heap, account.counter_s
        if not heap or heap[0][0] > counter_s:
            return account
        self._listed.add(account)
        return self._current(heappushpop(heap, (counter_s, account.number, account)))

    def _current(self, entry: _Entry) -> Account | None:
        """The account of a popped entry, or of the first behind it that has work and is up to date."""
        heap, queue_of = self._heap, self._queue_of
        while True:
            counter_s, _, account = entry
            if not queue_of(account).live:
                self._listed.discard(account)
                if not heap:
                    return None
                entry = heappop(heap)
            elif counter_s < account.counter_s:
                entry = heappushpop(heap, (account.counter_s, account.number, account))
            else:
                self._listed.discard(account)
                return account

    def take(self, account: Account, offer: Callable[[Work], bool]) -> Work | None:
        return self._queue_of(account).take(offer)

    def remove(self, account: Account, work: Work) -> None:
        self._queue_of(account).remove(work.id)

    def relist(self, account: Account) -> None:
        if self._queue_of(account).live:
            self.enlist(account)


class Fairness:
    """All accounts of one replica."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._accounts: dict[str, Account] = {}
        self._floor_s = 0.0
        self._seen_weight = 0.0
        self._weighed_at = float("-inf")

    def arrive(self, work: Work, now: float) -> Account:
        """The tenant's account, lifted when it comes back from an absence."""
        account = self._accounts.get(work.tenant_id)
        if account is None:
            account = self._open(work.tenant_id, now)
        elif now - account.seen > self._policy.lift_after_s and not account.is_busy:
            account.counter_s = max(account.counter_s, self._floor_s)
        account.seen = now
        account.weight = max(work.weight, 1e-3)
        return account

    def of(self, tenant_id: str) -> Account:
        """Raises `KeyError` for a tenant without work here."""
        return self._accounts[tenant_id]

    def waiting(self, work: Work) -> int:
        """Works queued of this one's tenant and class."""
        account = self._accounts.get(work.tenant_id)
        return 0 if account is None else account.waiting[work.sla_class]

    def reached(self, counter_s: float) -> None:
        """The fair queues served an account with this counter next: nobody waiting has a lower one."""
        self._floor_s = max(self._floor_s, counter_s)

    def share_of(self, account: Account, now: float) -> float:
        """The tenant's part of the device, 0..1, among the tenants seen lately."""
        if now - self._weighed_at > 0.05 or account.weight > self._seen_weight:
            horizon = now - self._policy.seen_s
            self._seen_weight = sum(each.weight for each in self._accounts.values() if each.seen >= horizon)
            self._weighed_at = now
        return min(1.0, account.weight / max(self._seen_weight, account.weight))

    def has_credit(self, account: Account, now: float) -> bool:
        """Whether the tenant's interactive work is still within its share of the device."""
        earned_s = (now - account.bucket_at) * self.share_of(account, now)
        account.bucket_s = min(self._policy.bucket_s, account.bucket_s + earned_s)
        account.bucket_at = now
        return account.bucket_s > 0.0

    def is_recovered(self, account: Account, now: float) -> bool:
        """Whether there is credit again for work that was demoted, not only for the next arrival."""
        threshold_s = self._policy.recovered_share * self._policy.bucket_s
        return self.has_credit(account, now) and account.bucket_s >= threshold_s

    def _open(self, tenant_id: str, now: float) -> Account:
        if len(self._accounts) >= self._policy.max_accounts:
            self._forget_idle()
        account = self._accounts[tenant_id] = Account(tenant_id, now, self._policy)
        account.counter_s = self._floor_s
        self._weighed_at = float("-inf")
        return account

    def _forget_idle(self) -> None:
        """Keep the accounts with work and the half of the idle ones that was seen last."""
        idle = sorted(
            (each for each in self._accounts.values() if not each.is_busy), key=lambda each: each.seen
        )
        for account in idle[: max(1, len(idle) // 2)]:
            del self._accounts[account.tenant_id]


class MinimumShare:
    """Device time promised to one lane while it waits: above zero it has earned what it did not get."""

    def __init__(self, share: float, limit_s: float = 1.0) -> None:
        self.share = share
        self._limit_s = limit_s
        self.earned_s = 0.0

    def account(self, total_s: float, lane_s: float, is_waiting: bool) -> None:
        if not is_waiting:
            self.earned_s = min(self.earned_s, 0.0)
        earned = self.earned_s + self.share * total_s - lane_s
        self.earned_s = max(-self._limit_s, min(self._limit_s, earned))


class Load:
    """How much of the device one lane used lately: an exponential average over about a second."""

    _SPAN_S = 1.0

    def __init__(self) -> None:
        self._used_s = 0.0
        self._at = 0.0

    def add(self, used_s: float, now: float) -> None:
        self._used_s = self._faded_s(now) + used_s
        self._at = now

    def share(self, now: float) -> float:
        return min(1.0, self._faded_s(now) / self._SPAN_S)

    def _faded_s(self, now: float) -> float:
        return self._used_s * exp(min(0.0, self._at - now) / self._SPAN_S)
