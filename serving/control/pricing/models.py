"""The price book: what using the platform costs, from which moment on."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.core.validators import MaxValueValidator, RegexValidator
from django.db import models
from django.db.models import Q
from django.utils import timezone

from tenants.ids import PrefixedIdField

MAX_MICRO = 10**15
"""A billion of the currency: more is a slip of the hand."""
CLASS_PATTERN = r"^[a-z0-9][a-z0-9.-]{0,62}$"
RATES = ("micro_per_device_hour", "micro_per_million_tokens", "micro_per_thousand_requests")


class Price(models.Model):
    """One price of one scope. Money in micro-units; names are copied, as in the ledger."""

    id = PrefixedIdField("prc_")
    model = models.CharField(max_length=100, blank=True, default="")
    """Empty: every model."""
    device_class = models.CharField(
        max_length=63,
        blank=True,
        default="",
        validators=[RegexValidator(CLASS_PATTERN, "Use lower-case letters, digits, dots and hyphens.")],
    )
    """Empty: every device."""
    effective_from = models.DateTimeField()
    micro_per_device_hour = models.PositiveBigIntegerField(
        default=0, validators=[MaxValueValidator(MAX_MICRO)]
    )
    micro_per_million_tokens = models.PositiveBigIntegerField(
        default=0, validators=[MaxValueValidator(MAX_MICRO)]
    )
    micro_per_thousand_requests = models.PositiveBigIntegerField(
        default=0, validators=[MaxValueValidator(MAX_MICRO)]
    )
    is_end = models.BooleanField(default=False)
    """From then on the scope has no price of its own: the next wider one binds."""
    note = models.CharField(max_length=200, blank=True, default="")
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    created_by = models.CharField(max_length=150, blank=True, editable=False)

    class Meta:
        app_label = "control"
        ordering = ["-effective_from", "model", "device_class"]
        constraints = [
            models.UniqueConstraint(
                fields=["model", "device_class", "effective_from"],
                name="control_price_once_per_moment",
                violation_error_code="field:effective_from",
                violation_error_message="This scope has a price from that moment already.",
            ),
            models.CheckConstraint(
                name="control_price_end_costs_nothing",
                condition=Q(is_end=False)
                | Q(micro_per_device_hour=0, micro_per_million_tokens=0, micro_per_thousand_requests=0),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.scope_text} from {self.effective_from:%F %R}"

    @property
    def scope_text(self) -> str:
        """`minilm on cpu`, `minilm`, `cpu` or `everything`."""
        return " on ".join(filter(None, (self.model, self.device_class))) or "everything"

    def facts(self) -> dict[str, Any]:
        names = ("model", "device_class", "effective_from", *RATES, "is_end", "note")
        return {name: getattr(self, name) for name in names}

    def has_begun(self, now: datetime) -> bool:
        return self.effective_from <= now


class ReadyHour(models.Model):
    """How long replicas of a version stood ready in one hour (UTC). Names are copied, as in the ledger."""

    hour = models.DateTimeField()
    version_id = models.CharField(max_length=32)
    model = models.CharField(max_length=100)
    policy = models.CharField(max_length=16)
    """Who bears what was idle: as the model said when the hour began."""
    ready_us = models.PositiveBigIntegerField()
    ready_parts = models.DecimalField(max_digits=40, decimal_places=0)
    """What that time would cost, in `serving.prices.PARTS_PER_MICRO` of a micro-unit."""
    idle_us = models.PositiveBigIntegerField(default=0)
    charged_us = models.PositiveBigIntegerField(default=0)
    """What of it somebody bears; all of it, or nothing."""
    settled_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        app_label = "control"
        ordering = ["-hour", "model", "version_id"]
        constraints = [
            models.UniqueConstraint(
                fields=["hour", "version_id"], name="control_ready_hour_once_per_version"
            ),
        ]
        indexes = [
            models.Index(fields=["hour"], name="control_ready_hour_unsettled", condition=Q(settled_at=None)),
        ]

    def __str__(self) -> str:
        return f"{self.model} {self.hour:%F %R}"
