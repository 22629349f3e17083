"""Works that wait while the rules around them change: new profiles, credit that comes back, memory that ran out."""

from __future__ import annotations

from typing import Any

import pytest

from serving.scheduling.memory import PROBE_AFTER_S, MemoryCap
from serving.scheduling.policy import Policy
from serving.scheduling.scheduler import Scheduler
from serving.scheduling.work import Batch, Terms, Work
from tests.serving.scheduling.works import scheduler, work


def terms(**more: Any) -> Terms:
    fields: dict[str, Any] = {
        "sla_class": "batch",
        "deadline": 60.0,
        "weight": 1.0,
        "max_batch_size": 32,
        "max_wait_s": 0.0,
        "max_queue": 1024,
        "late_policy": "refuse",
        "target_s": 0.0,
    }
    return Terms(**fields | more)


def ids(decision: Batch | float | None) -> list[int]:
    assert isinstance(decision, Batch)
    return [each.id for each in decision.works]


def submit(subject: Scheduler, *works: Work, now: float = 0.0) -> None:
    for each in works:
        assert subject.submit(each, now) is None


# ---------------------------------------------------------------- new terms


def test_a_queued_work_moves_to_its_new_class() -> None:
    subject = scheduler()
    first, promoted = work(max_batch_size=1), work(max_batch_size=1)
    submit(subject, first, promoted)
    assert subject.amend(promoted.id, terms(sla_class="interactive", deadline=1.0), 0.1)
    assert ids(subject.next_batch(0.1)) == [promoted.id]
    assert subject.queued_work == 1


def test_a_new_deadline_reorders_what_waits() -> None:
    subject = scheduler()
    early, late = (work("a", "interactive", within_s=within_s, max_batch_size=1) for within_s in (1.0, 2.0))
    submit(subject, early, late)
    assert subject.amend(late.id, terms(sla_class="interactive", deadline=0.5, max_batch_size=1), 0.0)
    assert ids(subject.next_batch(0.0)) == [late.id]
    assert ids(subject.next_batch(0.0)) == [early.id]


def test_a_new_weight_counts_for_what_waits_already() -> None:
    subject = scheduler()
    light, heavy = ([work(name, tokens=200) for _ in range(40)] for name in ("light", "heavy"))
    submit(subject, *light, *heavy)
    for each in heavy:
        assert subject.amend(each.id, terms(weight=4.0), 0.0)
    taken = [each for _ in range(10) for each in ids(subject.next_batch(0.0))]
    of_heavy = sum(each.id in taken for each in heavy)
    assert of_heavy / len(taken) == pytest.approx(0.8, abs=0.1)


def test_a_work_larger_than_its_new_maximum_stays_whole_and_runs_alone() -> None:
    subject = scheduler()
    large = work(rows=8, tokens=96)
    submit(subject, large, work())
    assert subject.amend(large.id, terms(max_batch_size=2, sla_class="standard"), 0.0)
    assert ids(subject.next_batch(0.0)) == [large.id]


def test_accepted_work_is_not_refused_for_its_new_terms_but_may_expire() -> None:
    subject = scheduler()
    waiting = work(late_policy="run")
    submit(subject, waiting)
    assert subject.amend(waiting.id, terms(max_queue=1, deadline=0.001), 0.0)
    assert subject.expired(0.0) == []
    [(expired, refusal)] = subject.expired(0.002)
    assert (expired.id, refusal.code) == (waiting.id, "deadline_unattainable")


def test_what_runs_or_is_gone_keeps_its_terms() -> None:
    subject = scheduler()
    running, gone = work(), work()
    submit(subject, running, gone)
    assert subject.cancel(gone.id)
    assert ids(subject.next_batch(0.0)) == [running.id]
    assert not subject.amend(running.id, terms(), 0.0)
    assert not subject.amend(gone.id, terms(), 0.0)


# ---------------------------------------------------------------- credit


def demoted_among(subject: Scheduler, count: int) -> list[Work]:
    burst = [work("greedy", "interactive", within_s=30.0) for _ in range(count)]
    submit(subject, work("bulk"), *burst)
    return [each for each in burst if each.lane == "standard"]


def test_demoted_work_is_urgent_again_when_its_tenants_credit_recovered() -> None:
    subject = scheduler(policy=Policy(bucket_s=0.02))
    demoted = demoted_among(subject, 12)
    assert demoted
    running = subject.next_batch(0.0)
    assert isinstance(running, Batch)
    subject.complete(running, running.predicted_s, 0.01)
    bulk = subject.next_batch(2.0)
    assert isinstance(bulk, Batch)
    assert bulk.is_urgent
    assert bulk.works[0] is demoted[0]
    assert bulk.works[0].lane == "interactive"


def test_demoted_work_waits_while_its_tenant_has_no_credit() -> None:
    subject = scheduler(policy=Policy(bucket_s=0.02))
    demoted = demoted_among(subject, 12)
    subject.next_batch(0.0)
    subject.next_batch(0.0)
    assert {each.lane for each in demoted} == {"standard"}


def test_few_works_are_promoted_in_one_decision() -> None:
    subject = scheduler(policy=Policy(bucket_s=0.02, recovered_share=-100.0, promotions=3), max_batch_rows=1)
    demoted = demoted_among(subject, 40)
    subject._fairness.of("greedy").bucket_s = 100.0
    subject.next_batch(1.0)
    assert sum(each.lane == "interactive" for each in demoted) <= 3


def test_work_that_was_degraded_stays_degraded() -> None:
    subject = scheduler()
    submit(subject, *(work("a", "interactive", within_s=60.0, tokens=400) for _ in range(40)))
    degraded = work("b", "interactive", within_s=0.005, late_policy="degrade")
    submit(subject, degraded)
    assert degraded.lane == "standard"
    subject.next_batch(5.0)
    assert degraded.lane == "standard"


# ---------------------------------------------------------------- memory


def test_batches_are_half_as_large_after_one_did_not_fit() -> None:
    subject = scheduler()
    submit(subject, *(work() for _ in range(96)))
    batch = subject.next_batch(0.0)
    assert isinstance(batch, Batch)
    cap = subject.ran_out_of_memory(batch.tokens, 0.0)
    smaller = subject.next_batch(0.0)
    assert isinstance(smaller, Batch)
    assert smaller.tokens <= cap == batch.tokens / 2


def test_a_learnt_limit_is_probed_and_forgotten_after_quiet_minutes() -> None:
    cap = MemoryCap()
    cap.failed(1000, 0.0)
    assert cap.tokens(PROBE_AFTER_S - 1) == 500
    assert cap.tokens(PROBE_AFTER_S) == 625
    assert cap.tokens(20 * PROBE_AFTER_S) == float("inf")


def test_a_failure_lowers_the_limit_no_further_than_what_fitted_since_the_last_one() -> None:
    cap = MemoryCap()
    cap.fitted(390)
    cap.failed(400, 0.0)
    assert cap.tokens(0.0) == 390
    cap.failed(390, 1.0)
    assert cap.tokens(1.0) == 195


def test_a_probe_that_fails_doubles_the_time_to_the_next() -> None:
    cap = MemoryCap()
    cap.failed(1000, 0.0)
    cap.failed(625, PROBE_AFTER_S)
    assert cap.tokens(2 * PROBE_AFTER_S) == 312.5
    assert cap.tokens(3 * PROBE_AFTER_S) == 312.5 * 1.25
    for _ in range(20):
        cap.failed(1, 0.0)
    assert cap.tokens(0.0) == 1
    assert cap.tokens(3599.0) == 1
