"""What runs next on one replica, together with what, and what does not run at all.

Pure: `now` comes in with every call, decisions go out as data. One caller at a time (the worker holds a
lock). Every submitted work gets exactly one outcome: a refusal from `submit`, True from `cancel`, an entry
of `expired`, or its place in one batch.
"""

from __future__ import annotations

from collections.abc import Sequence

from serving.scheduling.admission import (
    deadline_refusal,
    draining_refusal,
    refuse_full,
    refuse_late,
    refuse_parts,
    refuse_share,
)
from serving.scheduling.cost import CostModel
from serving.scheduling.draft import Draft
from serving.scheduling.fairness import Account, Fairness, MinimumShare
from serving.scheduling.forecast import Forecast
from serving.scheduling.policy import Policy
from serving.scheduling.receipts import Departures, share_batch_us
from serving.scheduling.sizing import Sizing
from serving.scheduling.waiting import Waiting
from serving.scheduling.work import LOWER, Batch, Lane, Refusal, Terms, Work

_FAIR_LANES: tuple[Lane, ...] = ("standard", "batch")


class Scheduler:
    """The engine thread's loop over it:

    1. `expired(now)` → answer each of these with its refusal,
    2. `next_batch(now)` → a batch to run now, a time (on the clock of `now`) until which to wait unless
       something arrives, or None when nothing is queued,
    3. at each pause of the engine, once: `urgent_batch(now, running)` → a batch to run there or None,
    4. `complete(batch, execute_s, now)` after each batch, the interrupting ones first.
    """

    def __init__(
        self,
        max_batch_rows: int,
        cost: CostModel,
        *,
        can_yield: bool = True,
        segments: int = 18,
        policy: Policy | None = None,
    ) -> None:
        """`segments`: pieces a batch runs in (pauses + 1); corrected by what is seen."""
        self._policy = policy or Policy()
        self._max_batch_rows = max_batch_rows
        self._cost = cost
        self._can_yield = can_yield
        self._sizing = Sizing(cost, self._policy, can_yield=can_yield, segments=segments)
        self._fairness = Fairness(self._policy)
        self._forecast = Forecast(
            cost,
            self._sizing,
            self._fairness,
            self._policy,
            max_batch_rows=max_batch_rows,
            can_yield=can_yield,
        )
        self._waiting = Waiting(
            cost, self._fairness, self._forecast, self._policy, max_batch_rows=max_batch_rows
        )
        self._promised: dict[Lane, MinimumShare] = {
            "standard": MinimumShare(self._policy.standard_min_share),
            "batch": MinimumShare(self._policy.batch_min_share),
        }
        self._expired: list[tuple[Work, Refusal]] = []
        self._batches = 0
        self._last_run = float("-inf")
        self._is_draining = False

    # ------------------------------------------------------------------ arrivals

    def submit(self, work: Work, now: float) -> Refusal | None:
        """Queue the work, or say at once why not. Raises `ValueError` for work no batch could hold."""
        self._check(work)
        if self._is_draining:
            return draining_refusal()
        account = self._fairness.arrive(work, now)
        self._assign_lane(work, account, now)
        alone_s = self._cost.predict_s(work.rows, work.tokens)
        refusal = self._refusal(work, account, alone_s, now)
        if refusal is not None:
            return refusal
        self._waiting.add(work, account, alone_s, now)
        self._sizing.saw(work, alone_s, now)
        return None

    def submit_parts(self, works: Sequence[Work], now: float) -> Refusal | None:
        """`submit` for the parts of one request, which have one tenant and profile: all of them or none."""
        if len(works) == 1:
            return self.submit(works[0], now)
        queued = self._fairness.waiting(works[0])
        refusal = refuse_parts(works, queued, len(self._waiting.works), self._policy.max_queued)
        for count, work in enumerate(works if refusal is None else ()):
            refusal = self.submit(work, now)
            if refusal is not None:
                for earlier in works[:count]:
                    self.cancel(earlier.id)
                break
        return refusal

    def cancel(self, work_id: int) -> bool:
        """True when the work was still queued and now never runs."""
        work = self._waiting.works.get(work_id)
        if work is None:
            return False
        self._waiting.withdraw(work)
        return True

    def amend(self, work_id: int, terms: Terms, now: float) -> bool:
        """New terms for a work that still waits, as if it had come with them; False when it does not wait.

        It was accepted, so it is not refused now: what its new deadline makes hopeless expires. A work
        that is larger than a new `max_batch_size` stays whole and runs alone.
        """
        work = self._waiting.works.get(work_id)
        if work is None:
            return False
        amended = work.under(terms)
        account = self._fairness.arrive(amended, now)
        self._waiting.withdraw(work)
        self._assign_lane(amended, account, now)
        alone_s = self._cost.predict_s(amended.rows, amended.tokens)
        if amended.late_policy == "degrade":
            self._refusal(amended, account, alone_s, now)
        self._waiting.add(amended, account, alone_s, now)
        self._sizing.saw(amended, alone_s, now)
        return True

    def expired(self, now: float) -> list[tuple[Work, Refusal]]:
        """Queued works whose deadline can no longer be met (late policy `refuse`), each reported once."""
        self._expire(now)
        out, self._expired = self._expired, []
        return out

    def drain(self) -> None:
        """Refuse new work from now on; what is queued runs without any waiting."""
        self._is_draining = True

    # ------------------------------------------------------------------ decisions

    def next_batch(self, now: float) -> Batch | float | None:
        """For a free device: a batch, a time to wait until (opted-in `max_wait_s` only), or None."""
        self._expire(now)
        if not self._waiting.works:
            return None
        if self._waiting.demoted:
            self._waiting.promote(now)
        wait_until = self._wait_until(now)
        if wait_until is not None:
            return wait_until
        starved = self._starved_lane()
        if self._waiting.interactive.live and starved is None:
            return self._urgent_or_filled(now)
        return self._bulk(now, starved)

    def urgent_batch(self, now: float, running: Batch) -> Batch | None:
        """For a pause of `running`: due interactive work, merged, or None. Ask once per pause.

        Nothing interrupts urgent work, and a suspect neither interrupts nor is interrupted.
        """
        running.boundaries += 1
        if self._waiting.demoted and not running.is_urgent:
            self._waiting.promote(now)
        if running.is_urgent or not self._waiting.interactive.live or running.works[0].is_suspect:
            return None
        self._expire(now)
        first = self._waiting.interactive.peek()
        if first is None or first.is_suspect:
            return None
        return self._start(self._draft_urgent(now), now, is_urgent=True)

    def complete(
        self,
        batch: Batch,
        execute_s: float,
        now: float,
        *,
        learn: bool = True,
        departures: Departures | None = None,
        culprits: Sequence[int] = (),
    ) -> list[int]:
        """Account for a batch that ran for `execute_s` without its interruptions.

        Returns each work's share of the device time in microseconds, in the batch's order; they sum to
        `execute_s` rounded to one. `learn=False` when the time says nothing about the cost curve (the
        engine failed, or ran the batch in parts). `departures` when works left before the end; `culprits` are
        the positions of works that broke the batch. Raises `ValueError` for a batch that is not running.
        """
        self._forecast.running.remove(batch)
        if self._forecast.running:
            self._forecast.running[-1].interrupted_s += execute_s
        if learn:
            self._cost.learn(batch.rows, batch.tokens, execute_s)
            self._sizing.ran(batch.tokens, batch.boundaries if not batch.is_urgent else 0)
        self._last_run = now
        execute_us = max(0, round(execute_s * 1e6))
        shares_us = (
            share_batch_us(batch, execute_us, culprits)
            if departures is None
            else departures.close(execute_us)
        )
        self._settle(batch, shares_us, now)
        return shares_us

    def ran_out_of_memory(self, tokens: int, now: float) -> float:
        """A batch of so many tokens did not fit the device; the most tokens a batch holds from now on."""
        return self._sizing.ran_out_of_memory(tokens, now)

    # ------------------------------------------------------------------ what is going on

    @property
    def has_urgent(self) -> bool:
        """Whether `urgent_batch` is worth asking; readable without the lock, at most one pause out of date."""
        return bool(self._waiting.interactive.live or self._waiting.demoted)

    @property
    def queued_rows(self) -> int:
        return self._forecast.queued_rows

    @property
    def queued_work(self) -> int:
        """Works queued."""
        return len(self._waiting.works)

    @property
    def running_rows(self) -> int:
        return sum(batch.rows for batch in self._forecast.running)

    @property
    def is_interrupting(self) -> bool:
        """Whether a batch stands still for another one."""
        return len(self._forecast.running) > 1

    @property
    def is_idle(self) -> bool:
        """Nothing queued, nothing running."""
        return not self._waiting.works and not self._forecast.running

    def backlog_s(self, now: float) -> float:
        """Predicted device time until everything queued and running is done."""
        return self._forecast.backlog_s(now)

    # ------------------------------------------------------------------ admission

    def _check(self, work: Work) -> None:
        if work.id in self._waiting.works:
            raise ValueError(f"work {work.id} is queued already")
        rows = work.rows
        if not 0 < rows <= self._max_batch_rows or rows > work.max_batch_size:
            raise ValueError(f"work {work.id} of {rows} rows fits no batch; the intake has to cut it")

    def _refusal(self, work: Work, account: Account, alone_s: float, now: float) -> Refusal | None:
        """What the queues are full of, or what they make late; most works pass without an exact outlook."""
        is_full = (
            account.waiting[work.sla_class] >= work.max_queue
            or len(self._waiting.works) >= self._policy.max_queued
        )
        share = account.full_share(work) if work.queue_shares else None
        if share is not None:
            return refuse_share(work, share, account.held[share.quota_id], self._forecast.backlog_s(now))
        if not is_full and self._forecast.is_surely_in_time(work, alone_s, now):
            return None
        outlook = self._forecast.outlook(work, account, alone_s, len(self._waiting.works), now)
        refusal = refuse_full(work, outlook, self._policy.max_queued)
        if refusal is None and self._may_refuse_late(work, now):
            refusal = self._judge_late(work, refuse_late(work, outlook, now))
        return refusal

    def _assign_lane(self, work: Work, account: Account, now: float) -> None:
        """Interactive work beyond its tenant's share of the device queues with the standard work."""
        work.lane = work.sla_class
        if work.sla_class == "interactive" and not self._fairness.has_credit(account, now):
            work.lane, work.is_demoted = "standard", True

    def _judge_late(self, work: Work, refusal: Refusal | None) -> Refusal | None:
        if refusal is not None and work.late_policy != "refuse":
            if work.late_policy == "degrade":
                work.lane, work.is_demoted = LOWER[work.lane], False
            return None
        return refusal

    def _may_refuse_late(self, work: Work, now: float) -> bool:
        """Predictions refuse only once they are worth something, and never keep an idle device from trying."""
        if work.deadline <= now:
            return True
        is_probe = self.is_idle and now - self._last_run > self._policy.probe_after_s
        return self._cost.is_trusted and not is_probe

    # ------------------------------------------------------------------ expiry

    def _expire(self, now: float) -> None:
        """Give up what would be answered late and is not wanted then."""
        for lane, backlog in self._forecast.backlogs.items():
            if not backlog.rows:
                continue
            for work in self._forecast.late(lane, now):
                needed_s = self._forecast.late_by_needing_s(work, now)
                if needed_s is None:  # fewer wait by now, so that the lane keeps up again
                    continue
                self._waiting.withdraw(work)
                refusal = deadline_refusal(work, work.deadline - now, needed_s, self.queued_work)
                self._expired.append((work, refusal))

    # ------------------------------------------------------------------ building batches

    def _wait_until(self, now: float) -> float | None:
        """When every queued work opted into waiting and no batch is full: the first moment that ends it."""
        if self._is_draining or self._waiting.eager:
            return None
        rows = tokens = 0
        limit, token_limit = self._max_batch_rows, self._forecast.token_limit("batch", now)
        ends = latest = float("inf")
        for work in self._waiting.works.values():
            rows, tokens = rows + work.rows, tokens + work.tokens
            limit = min(limit, work.max_batch_size)
            ends, latest = min(ends, work.arrived + work.max_wait_s), min(latest, work.deadline)
            if rows >= limit or tokens >= token_limit or work.is_suspect:
                return None
        predicted_s = self._cost.predict_s(rows, tokens)
        until = min(ends, latest - predicted_s - self._cost.margin_s(predicted_s))
        return until if until > now else None

    def _starved_lane(self) -> Lane | None:
        """A lane that waits and has earned a whole batch it did not get."""
        for lane in _FAIR_LANES:
            backlog = self._forecast.backlogs[lane]
            if not backlog.rows:
                continue
            threshold_s = min(
                0.5, self._cost.predict_s(1, max(1, backlog.tokens // max(1, self.queued_work)))
            )
            if self._promised[lane].earned_s > threshold_s:
                return lane
        return None

    def _urgent_or_filled(self, now: float) -> Batch:
        """Interactive work first. An engine that cannot pause takes other work along as far as it has room."""
        draft = self._draft_urgent(now)
        urgent = len(draft.works)
        if not self._can_yield and not draft.is_full:
            self._fill_beside(draft, now)
        return self._start(draft, now, is_urgent=len(draft.works) == urgent)

    def _draft_urgent(self, now: float) -> Draft:
        draft = Draft(self._max_batch_rows, self._forecast.token_limit("interactive", now))
        self._waiting.pick_urgent(draft)
        return draft

    def _fill_beside(self, draft: Draft, now: float) -> None:
        ends = min(work.arrived + work.target * self._policy.bound_share for work in draft.works)
        room_s = min(ends - now, self._sizing.room_s(min(work.target for work in draft.works)))
        draft.limit(self._cost.tokens_within(room_s - self._cost.margin_s(max(room_s, 0.0))))
        for lane in _FAIR_LANES:
            self._waiting.pick_fair(draft, lane)

    def _bulk(self, now: float, starved: Lane | None) -> Batch:
        draft = Draft(self._max_batch_rows, self._forecast.token_limit("batch", now))
        for lane in reversed(_FAIR_LANES) if starved == "batch" else _FAIR_LANES:
            self._waiting.pick_fair(draft, lane)
        return self._start(draft, now, is_urgent=False)

    def _start(self, draft: Draft, now: float, *, is_urgent: bool) -> Batch:
        self._batches += 1
        self._waiting.picked(draft)
        for work in draft.works:
            work.picked = now
        batch = Batch(
            id=self._batches,
            works=draft.works,
            rows=draft.rows,
            tokens=draft.tokens,
            close=draft.close_reason(now, is_urgent=is_urgent, is_draining=self._is_draining),
            predicted_s=self._cost.predict_s(draft.rows, draft.tokens),
            is_urgent=is_urgent,
            picked=now,
        )
        self._forecast.running.append(batch)
        return batch

    def _settle(self, batch: Batch, shares_us: list[int], now: float) -> None:
        by_lane: dict[Lane, float] = {"interactive": 0.0, "standard": 0.0, "batch": 0.0}
        for work, us in zip(batch.works, shares_us, strict=True):
            used_s = us / 1e6
            account = self._fairness.of(work.tenant_id)
            account.running -= 1
            account.settle(work.charged_s, used_s, work.weight)
            if work.lane == "interactive":
                account.bucket_s += work.spent_s - used_s
            by_lane[work.lane] += used_s
        total_s = sum(by_lane.values())
        for lane, load in self._forecast.loads.items():
            load.add(by_lane[lane], now)
        for lane, promise in self._promised.items():
            promise.account(total_s, by_lane[lane], bool(self._forecast.backlogs[lane].rows))
