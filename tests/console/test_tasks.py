"""The clock only ticks for tasks that exist, and each runs."""

from __future__ import annotations

import pytest

from console import tasks
from console.celery import app
from serving.control import task_outbox


def test_every_scheduled_task_exists() -> None:
    app.loader.import_default_modules()
    scheduled = {entry["task"] for entry in app.conf.beat_schedule.values()}
    assert scheduled <= set(app.tasks)


@pytest.mark.django_db
def test_tasks_run_and_asked_for_ones_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[str, dict[str, object]]] = []
    monkeypatch.setattr(app, "send_task", lambda name, kwargs: sent.append((name, kwargs)))
    task_outbox.ask("console.tasks.prune")
    assert tasks.dispatch() == 1
    assert sent == [("console.tasks.prune", {})]
    assert tasks.expire_keys() == {"expired": 0, "warned": 0}
    assert {"reports", "tombstones", "tasks", "replicas", "answers", "sessions"} <= set(tasks.prune())
