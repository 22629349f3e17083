"""The Celery application: background tasks and their clock.

Nothing calls `.delay()` inside a transaction: what needs a task asks `serving.control.task_outbox` for
it, and the clock's `dispatch` hands asked-for tasks to the queue once they are committed.
"""

from __future__ import annotations

import os

from celery import Celery
from celery.schedules import crontab

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")

app = Celery("tidegate")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["console"])

# `expires`: a tick that waited for longer than its interval is not worth running.
app.conf.beat_schedule = {
    "dispatch asked-for tasks": {
        "task": "console.tasks.dispatch",
        "schedule": 1.0,
        "options": {"expires": 1.0},
    },
    "expire keys": {"task": "console.tasks.expire_keys", "schedule": 30.0, "options": {"expires": 30.0}},
    "prune": {"task": "console.tasks.prune", "schedule": 600.0, "options": {"expires": 600.0}},
    "verify the audit trail": {
        "task": "console.tasks.verify_audit_trail_daily",
        "schedule": crontab(hour=3, minute=17),
        "options": {"expires": 3600.0},
    },
    "stream the audit trail": {
        "task": "console.tasks.stream_audit_trail",
        "schedule": 5.0,
        "options": {"expires": 5.0},
    },
    "deliver to audit webhooks": {
        "task": "console.tasks.deliver_audit_webhooks",
        "schedule": 5.0,
        "options": {"expires": 5.0},
    },
    "deliver alerts": {
        "task": "console.tasks.deliver_alerts",
        "schedule": 2.0,
        "options": {"expires": 2.0},
    },
    "archive the audit trail": {
        "task": "console.tasks.archive_audit_trail",
        "schedule": 600.0,
        "options": {"expires": 600.0},
    },
    "resume audit work": {
        "task": "console.tasks.resume_audit_work",
        "schedule": 60.0,
        "options": {"expires": 60.0},
    },
    "sign the audit trail": {
        "task": "console.tasks.sign_audit_chains",
        "schedule": 300.0,
        "options": {"expires": 300.0},
    },
}
