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
        self._dequeue(work, account)
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
        """Fill a batch with interactive work, earliest deadline first."""
        while not draft.is_full and (work := self.interactive.take(draft.fits)) is not None:
            self._pick(work, self._fairness.of(work.tenant_id), draft)

    def pick_fair(self, draft: Draft, name: Lane) -> None:
        """Take from the tenant with the lowest counter until the batch is full or little else fits."""
        if draft.is_full:
            return
        lane = self._lanes[name]
        misses: list[Account] = []
        account = lane.lowest()
        while account is not None:
            work = lane.take(account, draft.fits)
            if work is None:
                misses.append(account)
                account = lane.lowest() if len(misses) < self._policy.lookahead else None
                continue
            self._fairness.served(account)
            if self._pick(work, account, draft):
                misses.append(account)
                break
            account = lane.after(account)
        for account in misses:
            lane.relist(account)

    def _pick(self, work: Work, account: Account, draft: Draft) -> bool:
        """True when the batch is full now."""
        self._dequeue(work, account)
        draft.add(work)
        work.charged_s = charged_s = self._cost.charge_s(work.rows, work.tokens, self._max_batch_rows)
        account.charge(charged_s, work.weight)
        account.running += 1
        return draft.is_full

    def _spend(self, work: Work, account: Account, alone_s: float) -> None:
        """Beside other work an interruption costs a whole small batch, alone only what it adds to one."""
        backlogs = self._forecast.backlogs
        is_contended = backlogs["standard"].rows or backlogs["batch"].rows
        work.spent_s = alone_s if is_contended else self._cost.marginal_s(work.rows, work.tokens)
        account.bucket_s -= work.spent_s

    def _dequeue(self, work: Work, account: Account) -> None:
        """Forget a work that left its lane."""
        del self.works[work.id]
        if work.max_wait_s <= 0.0:
            self.eager -= 1
        self._forecast.left(work)
        account.unqueue(work)
        if work.is_demoted:
            account.demoted.remove(work.id)
