"""Background tasks are asked for in the transaction that needs them, and dispatched after it.

A bare `.delay()` inside a transaction would run before the commit, or without one. Instead a row is
written; the dispatcher claims due rows and hands them to the queue. A task may therefore run twice
(the hand-over can be repeated after a crash): tasks are idempotent and take ids only.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from django.db import models, transaction
from django.db.models import Q
from django.utils import timezone


class TaskOutbox(models.Model):
    """A task somebody asked for."""

    name = models.CharField(max_length=100)
    arguments = models.JSONField(default=dict)
    due_at = models.DateTimeField(default=timezone.now)
    created_at = models.DateTimeField(auto_now_add=True)
    dispatched_at = models.DateTimeField(null=True)

    class Meta:
        app_label = "control"
        indexes = [
            models.Index(
                fields=["due_at"], name="control_task_waiting", condition=Q(dispatched_at__isnull=True)
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} {self.arguments}"


def ask(name: str, *, due_at: datetime | None = None, **arguments: str | int) -> TaskOutbox:
    """Ask for a task by name; it is dispatched once the surrounding transaction has committed."""
    return TaskOutbox.objects.create(name=name, arguments=arguments, due_at=due_at or timezone.now())


def dispatch_due(send: Callable[[TaskOutbox], None], now: datetime, limit: int = 100) -> int:
    """Hand due tasks to `send`, one transaction each; returns how many. What `send` raises ends the round.

    A row is locked while it is handed over, so that several dispatchers share the work.
    """
    for done in range(limit):
        with transaction.atomic():
            due = (
                TaskOutbox.objects.select_for_update(skip_locked=True)
                .filter(dispatched_at__isnull=True, due_at__lte=now)
                .order_by("due_at")
                .first()
            )
            if due is None:
                return done
            send(due)
            due.dispatched_at = now
            due.save(update_fields=["dispatched_at"])
    return limit
