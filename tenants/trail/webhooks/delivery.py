"""Delivers events one by one, in the order of their chain, each at least once.

A cursor per chain moves in the transaction that notes the delivery, after the receiver said yes: whoever dies in
between sends the event again, under the same `webhook-id`. A lease keeps a second process away meanwhile, and
a process whose lease was taken over writes nothing.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime, timedelta

import structlog
from django.conf import settings
from django.db import connection, transaction
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from tenants.actors import Actor
from tenants.audit import record
from tenants.models import Tenant
from tenants.scoping import all_tenants, tenant_scope
from tenants.trail.canonical import chain_of, record_text
from tenants.trail.formats.writer import Row
from tenants.trail.models import AuditSinkCursor
from tenants.trail.reading import after
from tenants.trail.webhooks import signature
from tenants.trail.webhooks.models import AuditDeadLetter, AuditDelivery, AuditWebhook
from tenants.trail.webhooks.post import post
from tenants.trail.webhooks.schedule import Answer, Delivered, GiveUp, Pause, Retry, verdict

log = structlog.get_logger(__name__)

LEASE = timedelta(seconds=60)
"""Longer than anything between two looks at the clock: a name's resolution and one exchange."""
TICK_S = 4.0
"""No exchange begins later than this after the tick did: others wait for the same thread."""
TURN_S = 1.0
"""Of one webhook while others are due."""
PAGE_ROWS = 50
KEPT_DELIVERIES = 200
_TASKS = Actor.system("tasks")
Post = Callable[[str, bytes, dict[str, str], bool], Answer]

# One descent of the index per chain for its name, one for its end.
_BEHIND = """
WITH RECURSIVE c AS (
    (SELECT chain FROM tenants_auditlink ORDER BY chain LIMIT 1)
    UNION ALL
    SELECT (SELECT l.chain FROM tenants_auditlink l WHERE l.chain > c.chain ORDER BY l.chain LIMIT 1)
    FROM c WHERE c.chain IS NOT NULL
)
SELECT c.chain, e.position - coalesce(s.position, 0) FROM c
CROSS JOIN LATERAL (
    SELECT l.position FROM tenants_auditlink l WHERE l.chain = c.chain ORDER BY l.position DESC LIMIT 1
) e
LEFT JOIN tenants_auditsinkcursor s ON s.sink = %s AND s.chain = c.chain
WHERE c.chain IS NOT NULL AND e.position > coalesce(s.position, 0) ORDER BY c.chain
"""
_BEHIND_ONE = """
SELECT l.chain, l.position - coalesce(s.position, 0) FROM tenants_auditlink l
LEFT JOIN tenants_auditsinkcursor s ON s.sink = %s AND s.chain = l.chain
WHERE l.chain = %s AND l.position > coalesce(s.position, 0) ORDER BY l.position DESC LIMIT 1
"""


def deliver_due(now: datetime, send: Post = post) -> int:
    """A turn for every webhook that is due, the one that waited longest first; how many events arrived."""
    until, arrived = time.monotonic() + TICK_S, 0
    for webhook_id in _due(now):
        if time.monotonic() >= until:
            break
        try:
            arrived += take_turn(webhook_id, now, send)
        except Exception:
            log.exception("audit.webhook_turn_failed", webhook=webhook_id)  # one bad one fails alone
    return arrived


def take_turn(webhook_id: str, now: datetime, send: Post = post) -> int:
    """Send what this webhook has not had, until it fails, its time is over or nothing is left."""
    lease = secrets.token_hex(16)
    with all_tenants("the scope of its events is set below"):
        if not _free(now).filter(pk=webhook_id).update(lease=lease, leased_until=now + LEASE):
            return 0
        webhook = AuditWebhook.objects.get(pk=webhook_id)
    try:
        with _scope(webhook):
            return _Turn(webhook, lease, send).run()
    finally:
        with all_tenants("a lease is given back"):
            AuditWebhook.objects.filter(pk=webhook_id, lease=lease).update(lease="", leased_until=None)


def behind(webhook: AuditWebhook) -> dict[str, int]:
    """Chain → how many of its events were not delivered yet; chains without any are left out."""
    with connection.cursor() as cursor:
        if webhook.tenant_id is None:
            cursor.execute(_BEHIND, [webhook.pk])
        else:
            cursor.execute(_BEHIND_ONE, [webhook.pk, chain_of(webhook.tenant_id)])
        return {str(chain): int(count) for chain, count in cursor.fetchall()}


def body_of(row: Row) -> bytes:
    """The message: the record byte for byte as it was hashed, and its place in the chain."""
    head = (
        f'{{"type":"audit.event","timestamp":"{row["at"]}","data":{{"chain":"{row["chain"]}",'
        f'"position":{row["position"]},"prev_hash":"{bytes(row["prev_hash"]).hex()}",'
        f'"hash":"{bytes(row["hash"]).hex()}","record":'
    )
    return (head + record_text(row) + "}}").encode()


class _LeaseLost(Exception):
    """Somebody else delivers now: nothing may be written any more."""


class _Turn:
    """One webhook's deliveries in one tick."""

    def __init__(self, webhook: AuditWebhook, lease: str, send: Post) -> None:
        self.webhook, self.lease, self.send = webhook, lease, send
        self.until = time.monotonic() + TURN_S

    def run(self) -> int:
        arrived = 0
        try:
            for letter in AuditDeadLetter.objects.filter(webhook_id=self.webhook.pk, is_asked_again=True)[
                :PAGE_ROWS
            ]:
                arrived += self._again(letter)
                if self._is_over():
                    return arrived
            for chain in behind(self.webhook):
                arrived += self._chain(chain)
                if self._is_over():
                    break
        except _LeaseLost:
            log.warning("audit.webhook_lease_lost", webhook=self.webhook.pk)
        return arrived

    def _is_over(self) -> bool:
        return self.webhook.is_paused or self.webhook.attempts > 0 or time.monotonic() >= self.until

    def _chain(self, chain: str) -> int:
        arrived = 0
        while rows := after(chain, self._position(chain), PAGE_ROWS):
            for row in rows:
                arrived += self._deliver(row)
                if self._is_over():
                    return arrived
        return arrived

    def _position(self, chain: str) -> int:
        found = AuditSinkCursor.objects.filter(sink=self.webhook.pk, chain=chain).first()
        return found.position if found else 0

    def _deliver(self, row: Row) -> bool:
        answer = self._sent(row)
        if answer is None:
            return False
        now = timezone.now()
        what = verdict(answer, self.webhook.attempts, now, random.random())
        with transaction.atomic():
            self._hold(now)
            self._note(row, answer, self.webhook.attempts + 1, now)
            if isinstance(what, Delivered | GiveUp):
                self._move_on(row)
            if isinstance(what, GiveUp):
                self._bury(row, answer, now)
            self._state(what, answer, now)
        return isinstance(what, Delivered)

    def _again(self, letter: AuditDeadLetter) -> bool:
        """One attempt for one that was given up; it lies dead again when that fails."""
        row = next(
            (r for r in after(letter.chain, letter.position - 1, 1) if r["position"] == letter.position), None
        )
        answer = self._sent(row) if row else Answer(None, "The event is in an archive: fetch it there.")
        if answer is None:
            return False
        with transaction.atomic():
            self._hold(now := timezone.now())
            if row is not None:
                self._note(row, answer, letter.attempts + 1, now)
            if answer.is_success:
                letter.delete()
            else:
                letter.is_asked_again, letter.attempts = False, letter.attempts + 1
                letter.error = answer.sentence()[:200]
                letter.save(update_fields=["is_asked_again", "attempts", "error"])
            if answer.is_success:
                AuditWebhook.objects.filter(pk=self.webhook.pk).update(delivered=F("delivered") + 1)
        return answer.is_success

    def _sent(self, row: Row) -> Answer | None:
        """None, with the webhook paused, when there is nothing to sign with."""
        now = timezone.now()
        keys = signature.valid_keys(self.webhook.secrets, now)
        if not keys:
            self._pause("There is no valid secret. Roll it.")
            return None
        body = body_of(row)
        marks = signature.headers(row["event_id"], now, body, keys)
        return self.send(self.webhook.url, body, marks, settings.WEBHOOK_ALLOW_PRIVATE)

    def _hold(self, now: datetime) -> None:
        """Extend the lease, in the transaction that writes. Raises `_LeaseLost`."""
        held = AuditWebhook.objects.filter(pk=self.webhook.pk, lease=self.lease)
        if not held.update(leased_until=now + LEASE):
            raise _LeaseLost

    def _move_on(self, row: Row) -> None:
        AuditSinkCursor.objects.update_or_create(
            sink=self.webhook.pk, chain=row["chain"], defaults={"position": row["position"]}
        )

    def _note(self, row: Row, answer: Answer, attempt: int, now: datetime) -> None:
        AuditDelivery.objects.create(
            webhook_id=self.webhook.pk,
            tenant_id=self.webhook.tenant_id,
            at=now,
            event_id=row["event_id"],
            chain=row["chain"],
            position=row["position"],
            attempt=attempt,
            status=answer.status,
            error="" if answer.is_success else answer.sentence()[:200],
            took_ms=answer.took_ms,
        )

    def _bury(self, row: Row, answer: Answer, now: datetime) -> None:
        AuditDeadLetter.objects.update_or_create(
            webhook_id=self.webhook.pk,
            chain=row["chain"],
            position=row["position"],
            defaults={
                "tenant_id": self.webhook.tenant_id,
                "event_id": row["event_id"],
                "attempts": self.webhook.attempts + 1,
                "error": answer.sentence()[:200],
                "dead_at": now,
            },
        )
        log.warning("audit.webhook_gave_up", webhook=self.webhook.pk, event_id=row["event_id"])

    def _state(self, what: Delivered | Retry | GiveUp | Pause, answer: Answer, now: datetime) -> None:
        webhook = self.webhook
        if isinstance(what, Delivered):
            webhook.attempts, webhook.failing_since, webhook.last_error = 0, None, ""
            webhook.delivered, webhook.last_delivered_at = webhook.delivered + 1, now
        else:
            webhook.last_error = answer.sentence()[:200]
            webhook.failing_since = webhook.failing_since or now
        if isinstance(what, Retry):
            webhook.attempts, webhook.next_attempt_at = webhook.attempts + 1, what.at
        if isinstance(what, GiveUp):
            webhook.attempts = 0
        webhook.save(
            update_fields=[
                "attempts",
                "failing_since",
                "last_error",
                "delivered",
                "last_delivered_at",
                "next_attempt_at",
            ]
        )
        if isinstance(what, Pause):
            self._pause("The receiver answered that it is gone (410).")

    @transaction.atomic
    def _pause(self, why: str) -> None:
        """By ourselves, so it is an event too."""
        self.webhook.is_paused, self.webhook.pause_reason = True, why
        self.webhook.save(update_fields=["is_paused", "pause_reason"])
        tenant = Tenant.objects.filter(pk=self.webhook.tenant_id).first()
        record(
            by=_TASKS,
            action="audit_webhook.paused",
            target=self.webhook,
            tenant=tenant,
            outcome="failure",
            reason=why,
        )


def forget_old_deliveries() -> int:
    """Keep the newest of each webhook, and none of one that is gone."""
    forgotten = 0
    with all_tenants("the log of every webhook is bounded"):
        known = list(AuditWebhook.objects.values_list("pk", flat=True))
        forgotten += AuditDelivery.objects.exclude(webhook_id__in=known).delete()[0]
        for webhook_id in known:
            own = AuditDelivery.objects.filter(webhook_id=webhook_id)
            oldest = own.values_list("pk", flat=True)[KEPT_DELIVERIES : KEPT_DELIVERIES + 1]
            forgotten += own.filter(pk__lte=oldest[0]).delete()[0] if oldest else 0
    return forgotten


def _due(now: datetime) -> list[str]:
    with all_tenants("webhooks of every tenant are due"):
        return list(_free(now).order_by("next_attempt_at", "pk").values_list("pk", flat=True))


def _free(now: datetime) -> QuerySet[AuditWebhook]:
    """`schedule.is_due`, as the database asks it."""
    unheld = Q(leased_until__isnull=True) | Q(leased_until__lte=now)
    return AuditWebhook.objects.filter(unheld, is_paused=False, next_attempt_at__lte=now)


def _scope(webhook: AuditWebhook) -> AbstractContextManager[None]:
    if webhook.tenant_id is None:
        return all_tenants("a webhook of the platform gets every event")
    return tenant_scope(webhook.tenant_id)
