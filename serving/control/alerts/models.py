"""Alert rules, alerts as they stand and what became of them, silences, routes, and what is to be sent.

Rows without a tenant are the platform's: seen only by whoever sees the platform. An alert of the platform's rule
about one tenant's requests has that tenant, which sees the alert and not the rule.
"""

from __future__ import annotations

from typing import Any, ClassVar, cast

import msgspec
from django.contrib.postgres.fields import ArrayField
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import F, Q
from django.utils import timezone

from serving.control.alerts import engine, notify
from serving.control.alerts.rules import MAX_FOR_S, Rule, Severity, condition_of
from tenants.ids import PrefixedIdField
from tenants.scoping import TenantScopedManager

NAME_CHARS = 100
MAX_COMMENT_CHARS = 500


class SeverityChoice(models.TextChoices):
    INFO = "info", "Info"
    WARNING = "warning", "Warning"
    CRITICAL = "critical", "Critical"


class AlertStateChoice(models.TextChoices):
    PENDING = "pending", "Pending"
    FIRING = "firing", "Firing"
    RESOLVED = "resolved", "Resolved"


def _known(field: str, choices: type[models.TextChoices], name: str) -> models.CheckConstraint:
    return models.CheckConstraint(condition=Q(**{f"{field}__in": choices.values}), name=name)


class AlertRule(models.Model):
    """What is watched; `rule()` is what the engine sees of it."""

    id = PrefixedIdField("alr_")
    tenant = models.ForeignKey(
        "tenants.Tenant", models.CASCADE, null=True, blank=True, related_name="alert_rules"
    )
    name = models.CharField(max_length=NAME_CHARS)
    summary = models.CharField(max_length=MAX_COMMENT_CHARS, blank=True, default="")
    """One sentence for whoever is told: what it means, what to look at."""
    severity = models.CharField(max_length=16, choices=SeverityChoice.choices, default="warning")
    condition = models.JSONField()
    """A `serving.control.alerts.rules.Condition`, with its `type`."""
    by = ArrayField(models.CharField(max_length=40), default=list, blank=True)
    only = models.JSONField(default=dict, blank=True)
    labels = models.JSONField(default=dict, blank=True)
    for_s = models.FloatField(default=0, validators=[MinValueValidator(0), MaxValueValidator(MAX_FOR_S)])
    keep_firing_s = models.FloatField(
        default=60, validators=[MinValueValidator(0), MaxValueValidator(MAX_FOR_S)]
    )
    is_enabled = models.BooleanField(default=True)
    shipped_as = models.CharField(max_length=NAME_CHARS, blank=True, default="", editable=False)
    """Which of the shipped rules (`defaults`) it came from."""
    created_by = models.CharField(max_length=200, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    objects: ClassVar[TenantScopedManager[AlertRule]] = TenantScopedManager()

    class Meta:
        app_label = "control"
        ordering = ["name", "id"]
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "name"],
                nulls_distinct=False,
                name="control_alertrule_name_is_unique",
                violation_error_code="field:name",
                violation_error_message="Another rule has this name.",
            ),
            models.UniqueConstraint(
                fields=["shipped_as"], condition=~Q(shipped_as=""), name="control_alertrule_shipped_once"
            ),
            _known("severity", SeverityChoice, "control_alertrule_severity_is_known"),
        ]

    def __str__(self) -> str:
        return self.name

    def rule(self) -> Rule:
        """Raises ValueError for a condition that is none (any more)."""
        return Rule(
            id=self.pk,
            name=self.name,
            condition=condition_of(self.condition),
            severity=cast(Severity, self.severity),
            tenant_id=self.tenant_id,
            by=tuple(self.by),
            only=self.only,
            for_s=self.for_s,
            keep_firing_s=self.keep_firing_s,
            labels=self.labels,
        )


class Alert(models.Model):
    """One group of one rule as it stands. The engine's own state is in `state_body`; columns are for lists."""

    fingerprint = models.CharField(primary_key=True, max_length=16, editable=False)
    rule = models.ForeignKey(AlertRule, models.CASCADE, related_name="alerts")
    tenant = models.ForeignKey("tenants.Tenant", models.CASCADE, null=True, blank=True, related_name="alerts")
    """Whom it concerns, where it is one tenant."""
    labels = models.JSONField()
    state = models.CharField(max_length=16, choices=AlertStateChoice.choices)
    state_body = models.JSONField()
    """A `serving.control.alerts.engine.Alert`."""
    value = models.FloatField(null=True)
    is_stale = models.BooleanField(default=False)
    since = models.DateTimeField()
    fired_at = models.DateTimeField(null=True)
    resolved_at = models.DateTimeField(null=True)
    quiet_by = models.CharField(max_length=40, blank=True, default="")
    """What keeps it from being told: a silence's id, or `inhibited`."""
    acknowledged_at = models.DateTimeField(null=True)
    """Of the present episode."""
    acknowledged_by = models.CharField(max_length=200, blank=True, default="")
    acknowledgement = models.CharField(max_length=MAX_COMMENT_CHARS, blank=True, default="")
    updated_at = models.DateTimeField(auto_now=True)

    objects: ClassVar[TenantScopedManager[Alert]] = TenantScopedManager()

    class Meta:
        app_label = "control"
        ordering = ["-since", "fingerprint"]
        constraints = [_known("state", AlertStateChoice, "control_alert_state_is_known")]
        indexes = [models.Index(fields=["tenant", "state"], name="control_alert_by_tenant")]

    def __str__(self) -> str:
        return f"{self.rule.name} {self.fingerprint}"

    @property
    def is_acknowledged(self) -> bool:
        return self.acknowledged_at is not None

    def standing(self) -> notify.Standing:
        """As routes and channels see it. Reads the rule, which callers select with it."""
        return notify.standing(
            self.rule.rule(),
            msgspec.convert(self.state_body, engine.Alert),
            is_acknowledged=self.is_acknowledged,
            summary=self.rule.summary,
        )


class AlertTransition(models.Model):
    """An alert fired or resolved: history, by value, so that it outlives the rule."""

    id = models.BigAutoField(primary_key=True)
    at = models.DateTimeField()
    state = models.CharField(max_length=16, choices=AlertStateChoice.choices)
    fingerprint = models.CharField(max_length=16)
    fired_at = models.DateTimeField()
    rule_id = models.CharField(max_length=24)
    rule_name = models.CharField(max_length=NAME_CHARS)
    severity = models.CharField(max_length=16, choices=SeverityChoice.choices)
    tenant = models.ForeignKey(
        "tenants.Tenant", models.CASCADE, null=True, blank=True, related_name="alert_transitions"
    )
    labels = models.JSONField()
    value = models.FloatField(null=True)
    why = models.CharField(max_length=16, blank=True, default="")

    objects: ClassVar[TenantScopedManager[AlertTransition]] = TenantScopedManager()

    class Meta:
        app_label = "control"
        ordering = ["-id"]
        constraints = [
            # An episode fires once and resolves once, whoever writes it.
            models.UniqueConstraint(
                fields=["fingerprint", "fired_at", "state"], name="control_alerttransition_once"
            )
        ]
        indexes = [
            models.Index(fields=["tenant", "-id"], name="control_alerttransition_tenant"),
            models.Index(fields=["at"], name="control_alerttransition_time"),
        ]

    def __str__(self) -> str:
        return f"{self.rule_name} {self.state}"


class AlertSilence(models.Model):
    """Alerts that meet every matcher are not told between two moments."""

    id = PrefixedIdField("sil_")
    tenant = models.ForeignKey(
        "tenants.Tenant", models.CASCADE, null=True, blank=True, related_name="silences"
    )
    matchers = models.JSONField()
    """A list of `serving.control.alerts.notify.Matcher`."""
    starts_at = models.DateTimeField(default=timezone.now)
    ends_at = models.DateTimeField()
    comment = models.CharField(max_length=MAX_COMMENT_CHARS)
    created_by = models.CharField(max_length=200, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)

    objects: ClassVar[TenantScopedManager[AlertSilence]] = TenantScopedManager()

    class Meta:
        app_label = "control"
        ordering = ["-created_at", "id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(ends_at__gt=F("starts_at")),
                name="control_alertsilence_ends_after_it_starts",
                violation_error_code="field:ends_at",
                violation_error_message="A silence ends after it starts.",
            )
        ]

    def __str__(self) -> str:
        return self.comment

    def silence(self) -> notify.Silence:
        return notify.Silence(
            id=self.pk,
            matchers=msgspec.convert(self.matchers, tuple[notify.Matcher, ...]),
            starts_at=self.starts_at.timestamp(),
            ends_at=self.ends_at.timestamp(),
            tenant_id=self.tenant_id,
        )


class AlertRoute(models.Model):
    """Which alerts go to which channels, how they are grouped, and how often they are told again."""

    id = PrefixedIdField("art_")
    tenant = models.ForeignKey(
        "tenants.Tenant", models.CASCADE, null=True, blank=True, related_name="alert_routes"
    )
    name = models.CharField(max_length=NAME_CHARS)
    receivers = ArrayField(models.CharField(max_length=40), default=list, blank=True)
    """Ids of channels."""
    matchers = models.JSONField(default=list, blank=True)
    group_by = ArrayField(models.CharField(max_length=40), default=list, blank=True)
    group_wait_s = models.FloatField(default=5, validators=[MinValueValidator(0), MaxValueValidator(3600)])
    group_interval_s = models.FloatField(
        default=300, validators=[MinValueValidator(10), MaxValueValidator(MAX_FOR_S)]
    )
    repeat_interval_s = models.FloatField(
        default=14_400, validators=[MinValueValidator(60), MaxValueValidator(7 * MAX_FOR_S)]
    )
    is_enabled = models.BooleanField(default=True)
    created_by = models.CharField(max_length=200, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    objects: ClassVar[TenantScopedManager[AlertRoute]] = TenantScopedManager()

    class Meta:
        app_label = "control"
        ordering = ["name", "id"]

    def __str__(self) -> str:
        return self.name

    def route(self) -> notify.Route:
        return notify.Route(
            id=self.pk,
            receivers=tuple(self.receivers),
            matchers=msgspec.convert(self.matchers, tuple[notify.Matcher, ...]),
            tenant_id=self.tenant_id,
            group_by=tuple(self.group_by) or notify.DEFAULT_GROUP_BY,
            group_wait_s=self.group_wait_s,
            group_interval_s=self.group_interval_s,
            repeat_interval_s=self.repeat_interval_s,
        )


class AlertGroup(models.Model):
    """What one group of one receiver was told: a restarted controller tells nothing twice."""

    route = models.ForeignKey(AlertRoute, models.CASCADE, related_name="groups")
    receiver = models.CharField(max_length=40)
    group = models.CharField(max_length=1000)
    tenant = models.ForeignKey("tenants.Tenant", models.CASCADE, null=True, blank=True, related_name="+")
    """The route's."""
    told = models.JSONField()
    """A `serving.control.alerts.notify.Told`."""

    objects: ClassVar[TenantScopedManager[AlertGroup]] = TenantScopedManager()

    class Meta:
        app_label = "control"
        constraints = [
            models.UniqueConstraint(fields=["route", "receiver", "group"], name="control_alertgroup_once")
        ]

    def __str__(self) -> str:
        return f"{self.receiver} {self.group}"

    @property
    def key(self) -> notify.GroupKey:
        return self.route_id, self.receiver, self.group


class AlertNotification(models.Model):
    """What a channel is to be sent: written with the transitions it tells, in one transaction."""

    id = PrefixedIdField("ntf_")
    tenant = models.ForeignKey(
        "tenants.Tenant", models.CASCADE, null=True, blank=True, related_name="alert_notifications"
    )
    """The route's."""
    route_id = models.CharField(max_length=24)
    receiver = models.CharField(max_length=40)
    reason = models.CharField(max_length=16)
    body = models.JSONField()
    """A `serving.control.alerts.notify.Notification`."""
    created_at = models.DateTimeField(default=timezone.now)
    taken_at = models.DateTimeField(null=True)
    """When whoever delivers took it over."""

    objects: ClassVar[TenantScopedManager[AlertNotification]] = TenantScopedManager()

    class Meta:
        app_label = "control"
        ordering = ["-created_at", "id"]
        indexes = [
            models.Index(
                fields=["created_at"], name="control_alertnotif_waiting", condition=Q(taken_at__isnull=True)
            )
        ]

    def __str__(self) -> str:
        return f"{self.receiver} {self.reason}"

    def notification(self) -> notify.Notification:
        return msgspec.convert(self.body, notify.Notification)


def plain(value: Any) -> Any:
    """A struct as JSON holds it."""
    return msgspec.to_builtins(value)
