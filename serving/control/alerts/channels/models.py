"""Channels, and each notification's way to one."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.utils import timezone

from serving.control.alerts.models import NAME_CHARS, AlertNotification
from tenants.ids import PrefixedIdField
from tenants.scoping import TenantScopedManager

MAX_ERROR_CHARS = 200


class ChannelKind(models.TextChoices):
    WEBHOOK = "webhook", "Webhook"
    EMAIL = "email", "E-mail"
    SLACK = "slack", "Slack"
    FEISHU = "feishu", "Feishu"
    DINGTALK = "dingtalk", "DingTalk"
    WECOM = "wecom", "WeCom"


class DeliveryState(models.TextChoices):
    WAITING = "waiting", "Waiting"
    DELIVERED = "delivered", "Delivered"
    DEAD = "dead", "Given up"


class AlertChannel(models.Model):
    """Where alerts are told. Its route, which has its id as the only receiver, says which."""

    id = PrefixedIdField("ach_")
    tenant = models.ForeignKey(
        "tenants.Tenant", models.CASCADE, null=True, blank=True, related_name="alert_channels"
    )
    name = models.CharField(max_length=NAME_CHARS)
    kind = models.CharField(max_length=16, choices=ChannelKind.choices)
    language = models.CharField(
        max_length=8, choices=[("en", "English"), ("zh-hans", "简体中文")], default="en"
    )
    address_sealed = models.TextField(editable=False)
    """The URL, which of robots is a secret itself, or addresses of mail separated by commas."""
    secret_sealed = models.TextField(blank=True, default="", editable=False)
    shown_address = models.CharField(max_length=300, editable=False)
    """What of the address is no secret."""
    created_by = models.CharField(max_length=200, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)

    objects: ClassVar[TenantScopedManager[AlertChannel]] = TenantScopedManager()

    class Meta:
        app_label = "control"
        ordering = ["name", "id"]
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "name"],
                nulls_distinct=False,
                name="control_alertchannel_name_is_unique",
                violation_error_code="field:name",
                violation_error_message="Another channel has this name.",
            )
        ]

    def __str__(self) -> str:
        return self.name


class AlertDelivery(models.Model):
    """One notification to one channel: waiting, arrived, or given up. The newest attempt is kept."""

    notification = models.OneToOneField(AlertNotification, models.CASCADE, related_name="delivery")
    channel = models.ForeignKey(AlertChannel, models.CASCADE, related_name="deliveries")
    tenant = models.ForeignKey("tenants.Tenant", models.CASCADE, null=True, blank=True, related_name="+")
    """The channel's."""
    state = models.CharField(max_length=16, choices=DeliveryState.choices, default="waiting")
    attempts = models.IntegerField(default=0)
    next_attempt_at = models.DateTimeField(default=timezone.now)
    leased_until = models.DateTimeField(null=True)
    """Somebody sends it now, and others do not before this."""
    status = models.IntegerField(null=True)
    """HTTP status of the newest attempt; None when there was no answer, or for mail."""
    error = models.CharField(max_length=MAX_ERROR_CHARS, blank=True, default="")
    took_ms = models.IntegerField(default=0)
    tried_at = models.DateTimeField(null=True)

    objects: ClassVar[TenantScopedManager[AlertDelivery]] = TenantScopedManager()

    class Meta:
        app_label = "control"
        ordering = ["-id"]
        indexes = [
            models.Index(
                fields=["next_attempt_at"], name="control_alertdelivery_due", condition=Q(state="waiting")
            ),
            models.Index(fields=["channel", "-id"], name="control_alertdelivery_channel"),
        ]

    def __str__(self) -> str:
        return f"{self.notification_id} {self.state}"
