"""The works queued on one replica: by lane and tenant, who is next among them, and leaving them again."""

from __future__ import annotations

from collections import deque
from operator import attrgetter

from serving.scheduling.cost import CostModel
from serving.scheduling.draft import Draft
from serving.scheduling.fairness import Account, FairLane, Fairness
from serving.scheduling.forecast import Forecast
from serving.scheduling.policy import Policy
from serving.scheduling.queues import EarliestFirst
from serving.scheduling.work import Lane, Work


class Waiting:
    """Interactive work in one queue by deadline, the other lanes by tenant. Every way out is here."""

    def __init__(
        self,
        cost: CostModel,
        fairness: Fairness,
        forecast: Forecast,
        policy: Policy,
        *,
        max_batch_rows: int,
    ) -> None:
        self._cost = cost
        self._fairness = fairness
        self._forecast = forecast
        self._policy = policy
        self._max_batch_rows = max_batch_rows
        self.works: dict[int, Work] = {}
        self.eager = 0
        """Works that did not opt into waiting for companions."""
        self.interactive = EarliestFirst()
        self.demoted: deque[Account] = deque()
        """Tenants with demoted works, each once; those without leave when it is their turn."""
        self._lanes: dict[Lane, FairLane] = {
            "standard": FairLane(attrgetter("standard")),
            "batch": FairLane(attrgetter("batch")),
        }

    def add(self, work: Work, account: Account, alone_s: float, now: float) -> None:
        """Queue a work in its lane. `alone_s` is its predicted device time by itself."""
        self.works[work.id] = work
        if work.max_wait_s <= 0.0:
            self.eager += 1
        account.queue(work)
        self._forecast.entered(work, alone_s, now)
        if work.lane == "interactive":
            self._spend(work, account, alone_s)
            self.interactive.push(work.deadline, work)
            return
        if work.is_demoted:
            self._note_demoted(work, account)
        if work.lane == "standard":
            account.standard.push(work.deadline, work)
        else:
            account.batch.push(work)
        self._lanes[work.lane].enlist(account)

    def withdraw(self, work: Work) -> None:
        """Take a work that will not run out of its lane."""
        account = self._fairness.of(work.tenant_id)
        self._forget(work, account)
        self._forecast.left((work,), work.rows, work.tokens)
        account.bucket_s += work.spent_s
        if work.lane == "interactive":
            self.interactive.remove(work.id)
        else:
            self._lanes[work.lane].remove(account, work)

    def promote(self, now: float) -> None:
        """Give demoted works of tenants whose credit recovered their urgency back, a few per decision."""
        left = self._policy.promotions
        for _ in range(min(left, len(self.demoted))):
            account = self.demoted.popleft()
            while left and self._fairness.is_recovered(account, now):
                work = account.demoted.peek()
                if work is None:
                    break
                self._promote(work, account, now)
                left -= 1
            if account.demoted:
                self.demoted.append(account)
            else:
                account.awaits_credit = False

    def _promote(self, work: Work, account: Account, now: float) -> None:
        self.withdraw(work)
        work.lane, work.is_demoted = "interactive", False
        self.add(work, account, self._cost.predict_s(work.rows, work.tokens), now)

    def _note_demoted(self, work: Work, account: Account) -> None:
        account.demoted.push(work.deadline, work)
        if not account.awaits_credit:
            account.awaits_credit = True
            self.demoted.append(account)

    def pick_urgent(self, draft: Draft) -> None:
        """Fill a batch with interactive work, earliest deadline first. `picked` has to follow."""
        offer, take = draft.offer, self.interactive.take
        while not draft.is_full and (work := take(offer)) is not None:
            self._charge(work, self._fairness.of(work.tenant_id))

    def pick_fair(self, draft: Draft, name: Lane) -> None:
        """Take from the tenant with the lowest counter until the batch is full or little else fits.

        `picked` has to follow: what picking itself does not ask for is kept out of this loop.
        """
        if not draft.is_full:
            self._fill(draft, self._lanes[name])

    def _fill(self, draft: Draft, lane: FairLane) -> None:
        offer = draft.offer
        misses: list[Account] = []
        reached_s = 0.0
        account = lane.lowest()
        while account is not None:
            work = lane.take(account, offer)
            if work is None:
                misses.append(account)
                account = lane.lowest() if len(misses) < self._policy.lookahead else None
                continue
            reached_s = account.counter_s
            self._charge(work, account)
            if draft.is_full:
                misses.append(account)
                break
            account = lane.after(account)
        self._fairness.reached(reached_s)
        for account in misses:
            lane.relist(account)

    def picked(self, draft: Draft) -> None:
        """Forget all that left its lane for this batch."""
        account_of = self._fairness.of
        for work in draft.works:
            account = account_of(work.tenant_id)
            account.running += 1
            self._forget(work, account)
        self._forecast.left(draft.works, draft.rows, draft.tokens)

    def _charge(self, work: Work, account: Account) -> None:
        work.charged_s = charged_s = self._cost.charge_s(work.rows, work.tokens, self._max_batch_rows)
        account.charge(charged_s, work.weight)

    def _spend(self, work: Work, account: Account, alone_s: float) -> None:
        """Beside other work an interruption costs a whole small batch, alone only what it adds to one."""
        backlogs = self._forecast.backlogs
        is_contended = backlogs["standard"].rows or backlogs["batch"].rows
        work.spent_s = alone_s if is_contended else self._cost.marginal_s(work.rows, work.tokens)
        account.bucket_s -= work.spent_s

    def _forget(self, work: Work, account: Account) -> None:
        del self.works[work.id]
        if work.max_wait_s <= 0.0:
            self.eager -= 1
        account.unqueue(work)
        if work.is_demoted:
            account.demoted.remove(work.id)
