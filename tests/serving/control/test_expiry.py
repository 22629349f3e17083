"""Time takes keys away once, with a trace, and forgets what nobody needs."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from serving.control import expiry, publish, task_outbox
from serving.control.seam_tables import ConfigClock, ConfigEntry
from serving.control.task_outbox import TaskOutbox
from tenants.actions.keys import create_key
from tenants.actions.tenants import create_tenant
from tenants.actors import Actor
from tenants.models import ApiKey, AuditEvent
from tenants.scoping import all_tenants

pytestmark = pytest.mark.django_db


def expired_events() -> int:
    with all_tenants("test"):
        return AuditEvent.objects.filter(action="key.expired").count()


def test_an_expired_key_is_retracted_once_with_its_event(operator: Actor) -> None:
    tenant = create_tenant(by=operator, slug="acme", name="Acme")
    later = timezone.now() + timedelta(hours=1)
    key, _ = create_key(by=operator, tenant=tenant, name="short", expires_at=later)
    other, _ = create_key(by=operator, tenant=tenant, name="long")
    assert expiry.expire_keys(timezone.now()) == 0
    past = timezone.now() - timedelta(seconds=1)
    with all_tenants("test"):
        ApiKey.objects.filter(pk=key.pk).update(expires_at=past)
    publish.everything()
    assert not ConfigEntry.objects.get(kind="key", key=key.pk).deleted, "reconciliation leaves it to expiry"
    assert expiry.expire_keys(timezone.now()) == 1
    assert expiry.expire_keys(timezone.now()) == 0
    assert ConfigEntry.objects.get(kind="key", key=key.pk).deleted
    assert not ConfigEntry.objects.get(kind="key", key=other.pk).deleted
    assert expired_events() == 1
    assert publish.everything() == 0


def test_old_tombstones_go_and_raise_the_floor(operator: Actor) -> None:
    publish.put("tenant", "a", publish.entries.TenantEntry(id="a", slug="a", name="a"))
    gone = publish.delete("tenant", "a")
    now = timezone.now()
    assert publish.prune_tombstones(now - timedelta(hours=1)) == 0
    assert publish.prune_tombstones(now + timedelta(hours=1)) == 1
    assert ConfigClock.objects.get().floor == gone
    assert publish.prune_tombstones(now + timedelta(hours=1)) == 0


def test_pruning_says_what_it_deleted() -> None:
    kinds = {
        "reports",
        "tombstones",
        "tasks",
        "replicas",
        "ready_hours",
        "usage_minutes",
        "usage_hours",
        "metric_days",
        "alert_transitions",
        "alert_notifications",
    }
    assert set(expiry.prune(timezone.now())) == kinds


def test_tasks_asked_for_are_dispatched_once_and_when_due() -> None:
    now = timezone.now()
    task_outbox.ask("console.tasks.prune", job="job_1")
    task_outbox.ask("console.tasks.later", due_at=now + timedelta(hours=1))
    sent: list[tuple[str, dict[str, object]]] = []

    def send(task: TaskOutbox) -> None:
        sent.append((task.name, task.arguments))

    assert task_outbox.dispatch_due(send, timezone.now()) == 1
    assert task_outbox.dispatch_due(send, timezone.now()) == 0
    assert sent == [("console.tasks.prune", {"job": "job_1"})]


def test_a_task_the_queue_did_not_take_is_dispatched_again() -> None:
    task_outbox.ask("console.tasks.prune")

    def refuse(task: TaskOutbox) -> None:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        task_outbox.dispatch_due(refuse, timezone.now())
    assert task_outbox.dispatch_due(lambda task: None, timezone.now()) == 1
