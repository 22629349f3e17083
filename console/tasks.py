"""Background tasks: three-line wrappers, ids only; what they do lives with its noun."""

from __future__ import annotations

from celery import shared_task
from django.conf import settings
from django.contrib.sessions.backends.db import SessionStore
from django.utils import timezone

from console.api.once import forget_old
from console.celery import app
from console.sessions import drop_ended
from serving.control import expiry
from serving.control.alerts.channels import delivery as alert_delivery
from serving.control.task_outbox import TaskOutbox, dispatch_due
from tenants.ending import warn_of_ending_keys
from tenants.trail import checkpoints, exports, syslog, verifications
from tenants.trail.archives import step
from tenants.trail.webhooks import delivery


@shared_task
def dispatch() -> int:
    """Hand tasks that were asked for, and committed, to the queue."""
    return dispatch_due(_send, timezone.now())


@shared_task
def expire_keys() -> dict[str, int]:
    now = timezone.now()
    return {"expired": expiry.expire_keys(now), "warned": warn_of_ending_keys(now)}


@shared_task
def prune() -> dict[str, int]:
    SessionStore.clear_expired()
    now = timezone.now()
    ours = {"answers": forget_old(now), "sessions": drop_ended()}
    return {**expiry.prune(now), **ours, "audit_deliveries": delivery.forget_old_deliveries()}


@shared_task
def sign_audit_chains() -> int:
    return checkpoints.sign_grown_chains(timezone.now())


@shared_task
def verify_audit_trail(verification_id: str) -> bool:
    return verifications.run_verification(verification_id, timezone.now())


@shared_task
def verify_audit_trail_daily() -> bool:
    return verifications.verify_daily(timezone.now())


@shared_task
def export_audit_trail(export_id: str) -> bool:
    return exports.run_export(export_id, timezone.now())


@shared_task
def stream_audit_trail() -> int:
    return syslog.stream(settings.AUDIT_SYSLOG)


@shared_task
def deliver_audit_webhooks() -> int:
    return delivery.deliver_due(timezone.now())


@shared_task
def deliver_alerts() -> int:
    return alert_delivery.deliver_due(timezone.now())


@shared_task
def archive_audit_trail() -> int:
    return step.archive_due(timezone.now())


@shared_task
def resume_audit_work() -> int:
    """What was interrupted is done by somebody else; files past their time go."""
    now = timezone.now()
    done = [exports.run_export(each, now) for each in exports.left(now)]
    done += [verifications.run_verification(each, now) for each in verifications.left(now)]
    return sum(done) + exports.prune(now)


def _send(task: TaskOutbox) -> None:
    app.send_task(task.name, kwargs=task.arguments)
