"""Quotas as rows: how much of what, per when, for whom."""

from __future__ import annotations

from typing import ClassVar, cast

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import F, Q

from serving.contract import QuotaEntry, QuotaResource, QuotaWindow
from serving.quotas.limits import name_of
from tenants.ids import PrefixedIdField
from tenants.scoping import TenantScopedManager

BUDGETS = ("hour", "day", "month")
RATES = ("second", "minute")
MAX_LIMIT = 1 << 52
"""Valkey's scripts count in doubles."""
MAX_PER_SECOND = 1_000_000_000


class ResourceChoice(models.TextChoices):
    REQUESTS = "requests", "Requests"
    TOKENS = "tokens", "Tokens"
    DEVICE_US = "device_us", "Device time"
    COST_MICRO = "cost_micro", "Money"
    CONCURRENCY = "concurrency", "Requests in flight"
    QUEUE = "queue", "Requests waiting at a replica"


class WindowChoice(models.TextChoices):
    NONE = "", "At once"
    SECOND = "second", "Per second"
    MINUTE = "minute", "Per minute"
    HOUR = "hour", "Per hour"
    DAY = "day", "Per day"
    MONTH = "month", "Per month"


class Quota(models.Model):
    """One limit of a tenant; of one of its keys, or of its use of a model, where they are named."""

    id = PrefixedIdField("quo_")
    tenant = models.ForeignKey("tenants.Tenant", models.PROTECT, related_name="quotas")
    key = models.ForeignKey("tenants.ApiKey", models.CASCADE, null=True, blank=True, related_name="quotas")
    model = models.ForeignKey("control.Model", models.CASCADE, null=True, blank=True, related_name="quotas")
    resource = models.CharField(max_length=16, choices=ResourceChoice.choices)
    window = models.CharField(max_length=8, choices=WindowChoice.choices, blank=True)
    limit = models.BigIntegerField(validators=[MinValueValidator(1), MaxValueValidator(MAX_LIMIT)])
    """In the resource's base unit: requests, tokens, microseconds, micro-units of money."""
    burst = models.BigIntegerField(
        null=True, blank=True, validators=[MinValueValidator(1), MaxValueValidator(MAX_PER_SECOND)]
    )
    guaranteed = models.BigIntegerField(null=True, blank=True, validators=[MinValueValidator(1)])
    """Of a tenant's use of a model: so much of the model's pool is always there for it."""
    observe_only = models.BooleanField(default=False)
    soft_percent = models.PositiveSmallIntegerField(
        null=True, blank=True, validators=[MinValueValidator(1), MaxValueValidator(100)]
    )
    """A budget used up to this records an event, once per window."""
    is_of_platform = models.BooleanField(default=True, editable=False)
    """Set by an operator: the tenant's own admins see it, and cannot loosen it."""
    soft_told_for = models.BigIntegerField(default=0, editable=False)
    hard_told_for = models.BigIntegerField(default=0, editable=False)
    """Start of the newest window (Unix seconds) whose event was recorded."""
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    objects: ClassVar[TenantScopedManager[Quota]] = TenantScopedManager()

    class Meta:
        app_label = "control"
        ordering = ["tenant_id", "id"]
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "key", "model", "resource", "window"],
                nulls_distinct=False,
                name="control_quota_one_per_target",
                violation_error_message="There is a quota of this kind for the same target already.",
            ),
            models.CheckConstraint(
                condition=Q(resource__in=["concurrency", "queue"], window="")
                | Q(resource__in=["requests", "tokens"], window__in=[*RATES, *BUDGETS])
                | Q(resource__in=["device_us", "cost_micro"], window__in=BUDGETS),
                name="control_quota_window_fits_resource",
                violation_error_code="field:window",
                violation_error_message=(
                    "Requests and tokens are limited per second, minute, hour, day or month; device time and money"
                    " per hour, day or month; requests in flight or waiting at once."
                ),
            ),
            models.CheckConstraint(
                condition=~Q(resource="queue") | Q(observe_only=False),
                name="control_quota_queue_is_enforced",
                violation_error_code="field:observe_only",
                violation_error_message="What waits at replicas is counted there: it is limited or not.",
            ),
            models.CheckConstraint(
                condition=Q(limit__gte=1, limit__lte=MAX_LIMIT), name="control_quota_limit_positive"
            ),
            models.CheckConstraint(
                condition=~Q(window__in=RATES) | Q(limit__lte=MAX_PER_SECOND),
                name="control_quota_rate_is_bounded",
                violation_error_code="field:limit",
                violation_error_message="A rate cannot be higher than a billion.",
            ),
            models.CheckConstraint(
                condition=Q(burst__isnull=True) | Q(burst__gte=1, window__in=RATES),
                name="control_quota_burst_needs_rate",
                violation_error_code="field:burst",
                violation_error_message="A burst only means something per second or minute.",
            ),
            models.CheckConstraint(
                condition=Q(soft_percent__isnull=True)
                | Q(soft_percent__gte=1, soft_percent__lte=100, window__in=BUDGETS),
                name="control_quota_threshold_needs_budget",
                violation_error_code="field:soft_percent",
                violation_error_message="A threshold only means something per hour, day or month.",
            ),
            models.CheckConstraint(
                condition=Q(guaranteed__isnull=True)
                | Q(guaranteed__gte=1, guaranteed__lte=F("limit"), key=None, model__isnull=False)
                & (Q(resource="requests", window="second") | Q(resource="concurrency")),
                name="control_quota_guarantee_fits_pool",
                violation_error_code="field:guaranteed",
                violation_error_message=(
                    "Guaranteed may be requests per second or in flight of one model, for a tenant as a whole, up to"
                    " the limit."
                ),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} of {self.target_text}"

    @property
    def name(self) -> str:
        return name_of(self.entry())

    @property
    def target_text(self) -> str:
        """`acme`, `acme × nightly (key)`, `acme × minilm`."""
        key = f"{self.key.name} (key)" if self.key is not None else None
        parts = (self.tenant.slug, key, self.model.name if self.model is not None else None)
        return " × ".join(part for part in parts if part)

    def entry(self) -> QuotaEntry:
        return QuotaEntry(
            id=self.pk,
            tenant_id=self.tenant_id,
            resource=cast(QuotaResource, self.resource),
            limit=self.limit,
            window=cast(QuotaWindow, self.window),
            burst=self.burst,
            key_id=None if self.key is None else self.key.limited_as,
            model=self.model.name if self.model is not None else None,
            observe_only=self.observe_only,
            guaranteed=self.guaranteed,
        )
