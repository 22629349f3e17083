"""Background tasks: three-line wrappers, ids only; what they do lives with its noun."""

from __future__ import annotations

from celery import shared_task
from django.contrib.sessions.backends.db import SessionStore
from django.utils import timezone

from console.api.once import forget_old
from console.celery import app
from console.sessions import drop_ended
from serving.control import expiry
from serving.control.task_outbox import TaskOutbox, dispatch_due
from tenants.trail import checkpoints


@shared_task
def dispatch() -> int:
    """Hand tasks that were asked for, and committed, to the queue."""
    return dispatch_due(_send, timezone.now())


@shared_task
def expire_keys() -> int:
    return expiry.expire_keys(timezone.now())


@shared_task
def prune() -> dict[str, int]:
    SessionStore.clear_expired()
    now = timezone.now()
    return {**expiry.prune(now), "answers": forget_old(now), "sessions": drop_ended()}


@shared_task
def sign_audit_chains() -> int:
    return checkpoints.sign_grown_chains(timezone.now())


def _send(task: TaskOutbox) -> None:
    app.send_task(task.name, kwargs=task.arguments)
