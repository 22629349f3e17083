"""The rules of the scheduler, one at a time."""

from __future__ import annotations

import pytest

from serving.scheduling.policy import Policy
from serving.scheduling.scheduler import Scheduler
from serving.scheduling.work import Batch, Work
from tests.serving.scheduling.works import scheduler, work


def batch_of(decision: Batch | float | None) -> Batch:
    assert isinstance(decision, Batch)
    return decision


def submit(subject: Scheduler, *works: Work, now: float = 0.0) -> None:
    for each in works:
        assert subject.submit(each, now) is None


def run(subject: Scheduler, now: float) -> tuple[Batch, float]:
    """The next batch, run for exactly as long as predicted."""
    batch = batch_of(subject.next_batch(now))
    now += batch.predicted_s
    subject.complete(batch, batch.predicted_s, now)
    return batch, now


# ---------------------------------------------------------------- when


def test_a_free_device_takes_what_waits_at_once() -> None:
    subject = scheduler()
    submit(subject, work())
    batch = batch_of(subject.next_batch(0.0))
    assert (batch.rows, batch.close, batch.is_urgent) == (1, "idle", False)


def test_an_empty_queue_has_nothing_to_run() -> None:
    assert scheduler().next_batch(0.0) is None


def test_opted_in_waiting_ends_with_the_window() -> None:
    subject = scheduler()
    submit(subject, work(max_wait_s=0.02))
    assert subject.next_batch(0.0) == pytest.approx(0.02)
    batch = batch_of(subject.next_batch(0.02))
    assert batch.close == "window"


def test_opted_in_waiting_ends_when_the_batch_is_full() -> None:
    subject = scheduler()
    submit(subject, *(work(max_wait_s=0.02, max_batch_size=4) for _ in range(4)))
    assert batch_of(subject.next_batch(0.0)).close == "full"


def test_opted_in_waiting_never_costs_the_deadline() -> None:
    subject = scheduler()
    submit(subject, work(max_wait_s=1.0, within_s=0.05))
    until = subject.next_batch(0.0)
    assert isinstance(until, float)
    assert until + 0.0062 <= 0.05


def test_one_work_that_did_not_opt_in_ends_the_waiting() -> None:
    subject = scheduler()
    submit(subject, work(max_wait_s=1.0), work())
    assert batch_of(subject.next_batch(0.0)).rows == 2


# ---------------------------------------------------------------- how big


def test_rows_stay_within_every_members_maximum() -> None:
    subject = scheduler()
    submit(subject, *(work(max_batch_size=size) for size in (32, 32, 3, 32, 32)))
    assert batch_of(subject.next_batch(0.0)).rows == 3


def test_rows_stay_within_the_engines_maximum() -> None:
    subject = scheduler(max_batch_rows=4)
    submit(subject, *(work() for _ in range(9)))
    assert batch_of(subject.next_batch(0.0)).rows == 4


def test_work_that_fits_no_batch_is_the_intakes_mistake() -> None:
    with pytest.raises(ValueError):
        scheduler(max_batch_rows=4).submit(work(rows=5), 0.0)


def test_a_work_larger_than_any_token_limit_runs_alone() -> None:
    subject = scheduler()
    submit(subject, work(rows=4, tokens=5000), work())
    assert batch_of(subject.next_batch(0.0)).rows == 4


def test_bulk_batches_are_small_while_interactive_is_active_and_large_when_it_is_quiet() -> None:
    subject = scheduler()
    submit(subject, work("chat", "interactive", target_s=0.02))
    run(subject, 0.0)
    submit(subject, *(work(now=0.1) for _ in range(64)), now=0.1)
    beside, _ = run(subject, 0.1)
    quiet, _ = run(subject, 10.0)
    assert 120 <= beside.tokens <= 260
    assert quiet.rows == 32


def test_without_pauses_the_running_batch_leaves_room_for_the_target() -> None:
    subject = scheduler(can_yield=False)
    submit(subject, work("chat", "interactive", target_s=0.05))
    run(subject, 0.0)
    submit(subject, *(work(now=0.1) for _ in range(64)), now=0.1)
    batch, _ = run(subject, 0.1)
    assert batch.predicted_s + 0.0062 <= 0.05


# ---------------------------------------------------------------- who


def test_interactive_goes_first_by_earliest_deadline() -> None:
    subject = scheduler()
    late, early = work("a", "interactive", within_s=2.0), work("b", "interactive", within_s=1.0)
    submit(subject, work(), late, early)
    batch = batch_of(subject.next_batch(0.0))
    assert batch.is_urgent
    assert batch.works == [early, late]


def test_standard_goes_before_batch_and_batch_fills_up() -> None:
    subject = scheduler()
    filling, first = work("a", "batch"), work("b", "standard")
    submit(subject, filling, first)
    assert batch_of(subject.next_batch(0.0)).works == [first, filling]


def test_a_tenant_that_comes_back_has_no_claims_from_its_absence() -> None:
    subject = scheduler()
    submit(subject, work("idler"))
    _, now = run(subject, 0.0)
    submit(subject, *(work("steady", now=now) for _ in range(400)), now=now)
    for _ in range(6):
        _, now = run(subject, now)
    submit(subject, *(work("idler", now=now) for _ in range(200)), now=now)
    batch, _ = run(subject, now)
    assert {each.tenant_id for each in batch.works} == {"idler", "steady"}


def test_interactive_beyond_its_share_queues_with_the_others() -> None:
    subject = scheduler(policy=Policy(bucket_s=0.02))
    flood = [work("greedy", "interactive") for _ in range(20)]
    submit(subject, work("other", "standard"), *flood)
    assert {each.lane for each in flood} == {"interactive", "standard"}


def test_a_suspect_runs_alone_and_is_not_interrupted() -> None:
    subject = scheduler()
    suspect = work("a", "standard", is_suspect=True)
    submit(subject, suspect, work("a", "standard"), work("b", "standard"))
    batch = batch_of(subject.next_batch(0.0))
    assert batch.works == [suspect]
    submit(subject, work("chat", "interactive"))
    assert subject.urgent_batch(0.001, batch) is None


def test_a_suspect_interrupts_nobody() -> None:
    subject = scheduler()
    submit(subject, work())
    running = batch_of(subject.next_batch(0.0))
    suspect = work("chat", "interactive", is_suspect=True)
    submit(subject, suspect)
    assert subject.urgent_batch(0.001, running) is None
    subject.complete(running, 0.01, 0.01)
    assert batch_of(subject.next_batch(0.01)).works == [suspect]


# ---------------------------------------------------------------- pre-emption


def test_urgent_works_that_are_due_together_interrupt_together() -> None:
    subject = scheduler()
    submit(subject, work(rows=32, tokens=384))
    running = batch_of(subject.next_batch(0.0))
    assert subject.urgent_batch(0.01, running) is None
    due = [work("chat", "interactive", now=0.015) for _ in range(3)]
    submit(subject, *due, now=0.015)
    urgent = subject.urgent_batch(0.02, running)
    assert urgent is not None
    assert (urgent.works, urgent.close, urgent.is_urgent) == (due, "due", True)
    assert subject.urgent_batch(0.021, urgent) is None


def test_interruptions_are_not_charged_to_the_interrupted() -> None:
    subject = scheduler()
    bulk = work(rows=32, tokens=384)
    submit(subject, bulk)
    running = batch_of(subject.next_batch(0.0))
    submit(subject, work("chat", "interactive", now=0.01), now=0.01)
    urgent = subject.urgent_batch(0.02, running)
    assert urgent is not None
    subject.complete(urgent, 0.006, 0.026)
    assert running.interrupted_s == pytest.approx(0.006)
    assert subject.complete(running, 0.09, 0.116) == [90_000]


# ---------------------------------------------------------------- refusals


def test_a_deadline_behind_the_predicted_backlog_is_refused_at_once_with_numbers() -> None:
    subject = scheduler()
    submit(subject, *(work("a", "standard") for _ in range(300)))
    refusal = subject.submit(work("a", "standard", within_s=0.1), 0.0)
    assert refusal is not None
    assert refusal.code == "deadline_unattainable"
    assert refusal.numbers["predicted_ms"] > 500
    assert refusal.retry_after_s > 0


def test_other_late_policies_are_not_refused() -> None:
    subject = scheduler()
    submit(subject, *(work("a", "standard") for _ in range(300)))
    runs, degraded = (
        work("a", "standard", within_s=0.1, late_policy=policy) for policy in ("run", "degrade")
    )
    submit(subject, runs, degraded)
    assert (runs.lane, degraded.lane) == ("standard", "batch")


def test_an_idle_replica_takes_a_lone_request_that_fits() -> None:
    assert scheduler().submit(work(within_s=0.0063), 0.0) is None


def test_an_idle_replica_tries_a_request_its_model_calls_hopeless_once_in_a_while() -> None:
    subject = scheduler()
    hopeless = [work(within_s=0.005, now=now) for now in (0.0, 0.1, 5.0)]
    submit(subject, hopeless[0])
    run(subject, 0.0)
    assert subject.submit(hopeless[1], 0.1) is not None
    assert subject.submit(hopeless[2], 5.0) is None


def test_a_deadline_that_is_over_is_refused() -> None:
    refusal = scheduler(curve=None).submit(work(within_s=-0.001), 0.0)
    assert refusal is not None
    assert refusal.code == "deadline_unattainable"


def test_a_full_queue_names_its_limit() -> None:
    subject = scheduler()
    submit(subject, *(work(max_queue=5) for _ in range(5)))
    refusal = subject.submit(work(max_queue=5), 0.0)
    assert refusal is not None
    assert (refusal.code, refusal.numbers["limit"]) == ("queue_full", 5)
    assert subject.submit(work("other", max_queue=5), 0.0) is None


def test_the_replica_as_a_whole_is_bounded() -> None:
    subject = scheduler(policy=Policy(max_queued=3))
    submit(subject, *(work(f"t{index}") for index in range(3)))
    refusal = subject.submit(work("t9"), 0.0)
    assert refusal is not None
    assert refusal.code == "queue_full"


def test_work_that_waited_too_long_expires_once_with_a_reason() -> None:
    subject = scheduler()
    waiting = work("a", "standard", within_s=0.5)
    submit(subject, waiting)
    assert subject.next_batch(0.6) is None
    [(expired, refusal)] = subject.expired(0.6)
    assert expired is waiting
    assert refusal.code == "deadline_unattainable"
    assert subject.expired(0.7) == []
    assert subject.is_idle


def test_cancelled_work_never_runs() -> None:
    subject = scheduler()
    gone, stays = work(), work()
    submit(subject, gone, stays)
    assert subject.cancel(gone.id)
    assert not subject.cancel(gone.id)
    batch = batch_of(subject.next_batch(0.0))
    assert batch.works == [stays]
    assert not subject.cancel(stays.id)


def test_draining_refuses_the_new_and_finishes_the_old_without_waiting() -> None:
    subject = scheduler()
    submit(subject, work(max_wait_s=5.0))
    subject.drain()
    refusal = subject.submit(work(), 0.0)
    assert refusal is not None
    assert refusal.code == "draining"
    batch, _ = run(subject, 0.0)
    assert batch.close == "drain"
    assert subject.is_idle


# ---------------------------------------------------------------- figures


def test_counts_follow_the_queue() -> None:
    subject = scheduler()
    submit(subject, work(rows=3, tokens=36), work(rows=2, tokens=24))
    assert (subject.queued_rows, subject.queued_work, subject.running_rows) == (5, 2, 0)
    assert subject.backlog_s(0.0) == pytest.approx(0.0035 + 60 * 0.000225)
    batch_of(subject.next_batch(0.0))
    assert (subject.queued_rows, subject.queued_work, subject.running_rows) == (0, 0, 5)


def test_shares_of_a_batch_are_by_tokens_and_sum_to_its_time() -> None:
    subject = scheduler()
    light, heavy = work(tokens=10), work(tokens=30)
    submit(subject, light, heavy)
    batch = batch_of(subject.next_batch(0.0))
    shares = subject.complete(batch, 0.0123457, 0.0123457)
    by_work = dict(zip(batch.works, shares, strict=True))
    assert sum(shares) == 12346
    assert by_work[heavy] == pytest.approx(3 * by_work[light], rel=1e-3)


def test_completing_a_batch_twice_is_a_mistake() -> None:
    subject = scheduler()
    submit(subject, work())
    batch = batch_of(subject.next_batch(0.0))
    subject.complete(batch, 0.01, 0.01)
    with pytest.raises(ValueError):
        subject.complete(batch, 0.01, 0.01)


def test_a_tenant_that_was_forgotten_and_comes_back_is_served() -> None:
    subject = scheduler(policy=Policy(max_accounts=2))
    cancelled = work("a")
    submit(subject, cancelled, work("b"))
    assert subject.cancel(cancelled.id)
    submit(subject, work("c"), work("a"))
    batch, _ = run(subject, 0.0)
    assert {each.tenant_id for each in batch.works} == {"a", "b", "c"}
