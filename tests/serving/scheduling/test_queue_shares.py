"""Quotas on what waits: a tenant or a part of it holds no more of a queue than its share."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from serving.scheduling.scheduler import Scheduler
from serving.scheduling.work import QueueShare, Refusal, Terms
from tests.serving.scheduling.works import scheduler, work

KEY = QueueShare("quo_key", "key-waiting-requests", 2)
ALL = QueueShare("quo_all", "waiting-requests", 3)
OTHER_TERMS = Terms("standard", 60.0, 2.0, 32, 0.0, 1024, "refuse", 0.0)


def send(device: Scheduler, *shares: QueueShare, tenant_id: str = "acme") -> Refusal | None:
    return device.submit(work(tenant_id, queue_shares=shares), 0.0)


def test_a_share_that_is_full_refuses_with_its_numbers_and_leaves_others_alone() -> None:
    device = scheduler()
    assert [send(device, KEY) for _ in range(2)] == [None, None]
    refused = send(device, KEY)
    assert refused is not None and refused.code == "queue_share_full" and refused.retry_after_s > 0
    assert refused.numbers == {
        "quota": "key-waiting-requests",
        "quota_id": "quo_key",
        "limit": 2,
        "used": 2,
        "reserved": 0,
        "sla_class": "batch",
    }
    assert send(device) is None
    assert send(device, KEY._replace(quota_id="quo_x"), tenant_id="bolt") is None


def test_all_shares_that_bind_must_have_room() -> None:
    device = scheduler()
    assert [send(device, KEY, ALL) for _ in range(2)] == [None, None]
    assert send(device, ALL) is None
    refused = send(device, QueueShare("quo_y", "y", 9), ALL)
    assert refused is not None and refused.numbers["quota_id"] == "quo_all"
    assert send(device, QueueShare("quo_y", "y", 1)) is None, "a refused one holds no place"


def test_what_runs_waits_no_longer() -> None:
    device = scheduler()
    assert [send(device, KEY) for _ in range(2)] == [None, None]
    assert device.next_batch(0.0) is not None
    assert send(device, KEY) is None


@given(st.lists(st.sampled_from(["send", "cancel", "amend", "run"]), max_size=60))
def test_places_are_counted_exactly_whatever_leaves_the_queue(steps: list[str]) -> None:
    device, waiting = scheduler(), []
    for step in steps:
        if step == "send":
            each = work(queue_shares=(ALL,))
            refused = device.submit(each, 0.0)
            assert (refused is None) == (len(waiting) < ALL.limit)
            waiting += [] if refused else [each.id]
        elif step == "cancel" and waiting:
            assert device.cancel(waiting.pop())
        elif step == "amend" and waiting:
            assert device.amend(waiting[0], OTHER_TERMS, 0.0)
        elif step == "run":
            batch = device.next_batch(0.0)
            ran = {each.id for each in getattr(batch, "works", ())}
            waiting = [work_id for work_id in waiting if work_id not in ran]
            if ran:
                device.complete(batch, 0.01, 0.0)  # type: ignore[arg-type]
