"""Whatever arrives, is cancelled and completes, in whatever order: the promises hold."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from serving.scheduling.admission import refuse_late
from serving.scheduling.policy import Policy
from serving.scheduling.work import Batch, Terms, Work
from tests.serving.scheduling.works import scheduler, work

CLASSES = ("interactive", "standard", "batch")


class AnyHistory(RuleBasedStateMachine):
    @initialize(
        can_yield=st.booleans(),
        max_batch_rows=st.sampled_from((1, 4, 32)),
        is_known=st.booleans(),
        max_accounts=st.sampled_from((1, 2, 4096)),
    )
    def begin(self, can_yield: bool, max_batch_rows: int, is_known: bool, max_accounts: int) -> None:
        more = {"policy": Policy(max_accounts=max_accounts)} | ({} if is_known else {"curve": None})
        self.max_batch_rows = max_batch_rows
        self.can_yield = can_yield
        self.subject = scheduler(can_yield=can_yield, max_batch_rows=max_batch_rows, **more)
        self.now = 0.0
        self.queued: dict[int, Work] = {}
        self.stack: list[Batch] = []
        self.outcomes: Counter[int] = Counter()
        self.submitted = 0
        self.is_draining = False

    @rule(
        tenant=st.sampled_from("abc"),
        sla_class=st.sampled_from(CLASSES),
        rows=st.integers(1, 4),
        tokens_per_row=st.integers(0, 120),
        within_s=st.sampled_from((-1.0, 0.004, 0.05, 0.5, 60.0)),
        max_batch_size=st.sampled_from((1, 2, 8, 32)),
        max_wait_s=st.sampled_from((0.0, 0.0, 0.01)),
        late_policy=st.sampled_from(("refuse", "degrade", "run")),
        is_suspect=st.booleans(),
        weight=st.sampled_from((0.5, 1.0, 4.0)),
        max_queue=st.sampled_from((1, 5, 1024)),
    )
    def submit(
        self, tenant: str, sla_class: str, rows: int, tokens_per_row: int, within_s: float, **more
    ) -> None:
        rows = min(rows, self.max_batch_rows, more["max_batch_size"])
        each = work(tenant, sla_class, self.now, within_s, rows=rows, tokens=rows * tokens_per_row, **more)
        must_enter = self.subject.is_idle and not self.is_draining and self._fits_alone(each)
        self._check_the_quick_bound(each)
        refusal = self.subject.submit(each, self.now)
        self.submitted += 1
        if refusal is None:
            assert not self.is_draining
            self.queued[each.id] = each
        else:
            assert not must_enter
            assert refusal.message
            self.outcomes[each.id] += 1

    @rule(after_s=st.sampled_from((0.0001, 0.003, 0.05, 2.0)))
    def wait(self, after_s: float) -> None:
        self.now += after_s

    @precondition(lambda self: self.queued)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        work_id = data.draw(st.sampled_from(sorted(self.queued)))
        assert self.subject.cancel(work_id)
        self._outcome(work_id)

    @precondition(lambda self: self.queued)
    @rule(
        data=st.data(),
        sla_class=st.sampled_from(CLASSES),
        within_s=st.sampled_from((-1.0, 0.004, 0.5, 60.0)),
        max_batch_size=st.sampled_from((1, 2, 32)),
        max_wait_s=st.sampled_from((0.0, 0.01)),
        late_policy=st.sampled_from(("refuse", "degrade", "run")),
        weight=st.sampled_from((0.5, 4.0)),
    )
    def amend(self, data: st.DataObject, within_s: float, **more) -> None:
        """Accepted once, it is not refused for its new terms; what runs or ended is left alone."""
        self.collect_expired()
        if not self.queued:
            return
        work_id = data.draw(st.sampled_from(sorted(self.queued)))
        terms = Terms(deadline=self.now + within_s, max_queue=1, target_s=0.0, **more)
        assert self.subject.amend(work_id, terms, self.now)
        amended = self.subject._waiting.works[work_id]
        assert amended.rows <= amended.max_batch_size
        self.queued[work_id] = amended

    @precondition(lambda self: self.stack)
    @rule()
    def amend_what_runs(self) -> None:
        terms = Terms("batch", self.now, 1.0, 1, 0.0, 1, "refuse", 0.0)
        assert not any(self.subject.amend(each.id, terms, self.now) for each in self.stack[-1].works)

    @precondition(lambda self: self.stack)
    @rule()
    def run_out_of_memory(self) -> None:
        tokens = self.stack[-1].tokens
        assert 1.0 <= self.subject.ran_out_of_memory(tokens, self.now) <= max(1.0, tokens)

    @rule()
    def collect_expired(self) -> None:
        for each, refusal in self.subject.expired(self.now):
            assert refusal.code == "deadline_unattainable"
            assert each.late_policy == "refuse"
            self._outcome(each.id)

    @precondition(lambda self: not self.stack)
    @rule()
    def dispatch(self) -> None:
        self.collect_expired()
        decision = self.subject.next_batch(self.now)
        if isinstance(decision, Batch):
            self._begin(decision)
        elif decision is None:
            assert not self.queued, "the device idles while work waits"
        else:
            assert decision > self.now
            assert not self.is_draining
            assert all(each.max_wait_s > 0 for each in self.queued.values())
            assert decision <= min(each.arrived + each.max_wait_s for each in self.queued.values())

    @precondition(lambda self: self.stack and self.can_yield)
    @rule()
    def pause(self) -> None:
        running = self.stack[-1]
        urgent = self.subject.urgent_batch(self.now, running)
        self.collect_expired()
        if urgent is not None:
            assert not running.is_urgent
            assert urgent.is_urgent
            assert not any(each.is_suspect for each in running.works + urgent.works)
            self._begin(urgent)

    @precondition(lambda self: self.stack)
    @rule(factor=st.sampled_from((0.5, 1.0, 1.1, 5.0)))
    def complete(self, factor: float) -> None:
        batch = self.stack.pop()
        execute_s = batch.predicted_s * factor
        self.now += execute_s
        shares = self.subject.complete(batch, execute_s, self.now)
        assert len(shares) == len(batch.works)
        assert sum(shares) == round(execute_s * 1e6)

    @rule()
    def drain(self) -> None:
        if self.submitted > 20:
            self.subject.drain()
            self.is_draining = True

    @invariant()
    def counts_agree(self) -> None:
        if not hasattr(self, "subject"):
            return
        pending = {each.id for each, _ in self.subject._expired}
        waiting = [each for work_id, each in self.queued.items() if work_id not in pending]
        assert self.subject.queued_work == len(waiting)
        assert self.subject.queued_rows == sum(each.rows for each in waiting)
        assert all(count == 1 for count in self.outcomes.values())

    def teardown(self) -> None:
        """Everything left still ends, each work exactly once."""
        if not hasattr(self, "subject"):
            return
        self.subject.drain()
        self.is_draining = True
        while self.stack or self.queued:
            if self.stack:
                self.complete(1.0)
            else:
                self.dispatch()
        assert self.subject.is_idle
        assert sum(self.outcomes.values()) == self.submitted

    def _begin(self, batch: Batch) -> None:
        assert batch.works
        assert batch.rows == sum(each.rows for each in batch.works)
        assert batch.rows <= min(self.max_batch_rows, *(each.max_batch_size for each in batch.works))
        assert len(batch.works) == 1 or not any(each.is_suspect for each in batch.works)
        for each in batch.works:
            self._outcome(each.id)
        self._earliest_deadline_first(batch)
        self.stack.append(batch)

    def _earliest_deadline_first(self, batch: Batch) -> None:
        taken = [each.deadline for each in batch.works if each.lane == "interactive"]
        left = [each.deadline for each in self.queued.values() if each.lane == "interactive"]
        assert taken == sorted(taken)
        assert not taken or not left or taken[-1] <= min(left)

    def _check_the_quick_bound(self, each: Work) -> None:
        """What enters without an exact outlook is never what the exact outlook would have refused."""
        probe = replace(each, lane=each.sla_class)
        account = self.subject._fairness.arrive(probe, self.now)
        alone_s = self.subject._cost.predict_s(each.rows, each.tokens)
        if self.subject._forecast.is_surely_in_time(probe, alone_s, self.now):
            outlook = self.subject._forecast.outlook(probe, account, alone_s, 0, self.now)
            assert refuse_late(probe, outlook, self.now) is None

    def _fits_alone(self, each: Work) -> bool:
        return self.now + self.subject._cost.predict_s(each.rows, each.tokens) <= each.deadline

    def _outcome(self, work_id: int) -> None:
        self.outcomes[work_id] += 1
        del self.queued[work_id]


TestAnyHistory = AnyHistory.TestCase
TestAnyHistory.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
