"""Where audit events are sent, what happened to each, and what could not be delivered."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.utils import timezone

from tenants.ids import PrefixedIdField
from tenants.scoping import TenantScopedManager

MAX_URL_CHARS = 500
MAX_ERROR_CHARS = 200


class AuditWebhook(models.Model):
    """The one receiver of a tenant's events, or (without a tenant) of all events.

    `AuditSinkCursor` holds how far each chain was delivered, under this row's id.
    """

    id = PrefixedIdField("whk_")
    tenant_id = models.CharField(max_length=20, null=True, blank=True)  # noqa: DJ001 - absent, not empty
    tenant_name = models.CharField(max_length=100, blank=True, default="")
    url = models.CharField(max_length=MAX_URL_CHARS)
    is_paused = models.BooleanField(default=False)
    pause_reason = models.CharField(max_length=MAX_ERROR_CHARS, blank=True, default="")
    secrets = models.JSONField(default=list)
    """Newest first: `salt` and `check` of `tenants.trail.webhooks.signature`, `until` (RFC 3339) or null."""
    attempts = models.IntegerField(default=0)
    """How often the event whose turn it is failed."""
    next_attempt_at = models.DateTimeField(default=timezone.now)
    failing_since = models.DateTimeField(null=True)
    last_error = models.CharField(max_length=MAX_ERROR_CHARS, blank=True, default="")
    delivered = models.BigIntegerField(default=0)
    last_delivered_at = models.DateTimeField(null=True)
    lease = models.CharField(max_length=32, blank=True, default="")
    leased_until = models.DateTimeField(null=True)
    """Who delivers now, and until when another one must not. One that died is followed after this moment."""
    created_at = models.DateTimeField(default=timezone.now)

    objects: ClassVar[TenantScopedManager[AuditWebhook]] = TenantScopedManager()

    class Meta:
        app_label = "tenants"
        ordering = ("created_at", "id")
        verbose_name = "audit webhook"
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["tenant_id"], name="audit_webhook_one_per_tenant", nulls_distinct=False
            ),
        ]

    def __str__(self) -> str:
        return self.url

    @property
    def state(self) -> str:
        if self.is_paused:
            return "paused"
        return "failing" if self.failing_since else "active"

    def facts(self) -> dict[str, object]:
        return {"url": self.url, "paused": self.is_paused}


class AuditDelivery(models.Model):
    """One attempt. Only the newest of each webhook are kept."""

    webhook_id = models.CharField(max_length=20)
    tenant_id = models.CharField(max_length=20, null=True, blank=True)  # noqa: DJ001 - the webhook's
    at = models.DateTimeField()
    event_id = models.CharField(max_length=40)
    chain = models.CharField(max_length=20)
    position = models.BigIntegerField()
    attempt = models.IntegerField()
    status = models.IntegerField(null=True)
    """HTTP status; None when there was no answer."""
    error = models.CharField(max_length=MAX_ERROR_CHARS, blank=True, default="")
    took_ms = models.IntegerField()

    objects: ClassVar[TenantScopedManager[AuditDelivery]] = TenantScopedManager()

    class Meta:
        app_label = "tenants"
        ordering = ("-id",)
        indexes: ClassVar = [models.Index(fields=["webhook_id", "-id"], name="audit_delivery_by_webhook")]

    def __str__(self) -> str:
        return f"{self.event_id} {self.status}"


class AuditDeadLetter(models.Model):
    """An event that was given up, until it is sent again and arrives."""

    webhook_id = models.CharField(max_length=20)
    tenant_id = models.CharField(max_length=20, null=True, blank=True)  # noqa: DJ001 - the webhook's
    chain = models.CharField(max_length=20)
    position = models.BigIntegerField()
    event_id = models.CharField(max_length=40)
    attempts = models.IntegerField()
    error = models.CharField(max_length=MAX_ERROR_CHARS, blank=True, default="")
    dead_at: models.DateTimeField[datetime, datetime] = models.DateTimeField()
    is_asked_again = models.BooleanField(default=False)

    objects: ClassVar[TenantScopedManager[AuditDeadLetter]] = TenantScopedManager()

    class Meta:
        app_label = "tenants"
        ordering = ("id",)
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["webhook_id", "chain", "position"], name="audit_dead_letter_once_per_event"
            ),
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["webhook_id", "id"], name="audit_dead_letter_again", condition=Q(is_asked_again=True)
            ),
        ]

    def __str__(self) -> str:
        return self.event_id
