"""SLA profiles and what they are bound to."""

from __future__ import annotations

from typing import ClassVar

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import F, Q

from serving.profiles import ENDPOINTS
from tenants.ids import PrefixedIdField
from tenants.scoping import SharedScopedManager


class SlaClassChoice(models.TextChoices):
    INTERACTIVE = "interactive", "Interactive: earliest deadline first"
    STANDARD = "standard", "Standard: fair shares"
    BATCH = "batch", "Batch: fills what is free"


class LatePolicyChoice(models.TextChoices):
    REFUSE = "refuse", "Refuse at once what cannot meet its deadline"
    DEGRADE = "degrade", "Let it wait in a lower class"
    RUN = "run", "Run it anyway"


class SlaProfile(models.Model):
    """What a request is promised, and what the scheduler may do to keep it. Times in milliseconds."""

    id = PrefixedIdField("pro_")
    name = models.CharField(
        max_length=63, unique=True, error_messages={"unique": "Another profile has this name."}
    )
    description = models.CharField(max_length=200, blank=True, default="")
    sla_class = models.CharField(max_length=16, choices=SlaClassChoice.choices, default="standard")
    target_p95_ms = models.FloatField(
        default=200.0, validators=[MinValueValidator(1.0), MaxValueValidator(3_600_000.0)]
    )
    deadline_ms = models.FloatField(
        default=2000.0, validators=[MinValueValidator(1.0), MaxValueValidator(86_400_000.0)]
    )
    max_batch_size = models.PositiveIntegerField(
        default=32, validators=[MinValueValidator(1), MaxValueValidator(4096)]
    )
    max_wait_ms = models.FloatField(
        default=0.0, validators=[MinValueValidator(0.0), MaxValueValidator(10_000.0)]
    )
    weight = models.FloatField(default=1.0, validators=[MinValueValidator(0.01), MaxValueValidator(1000.0)])
    max_queue = models.PositiveIntegerField(
        default=1024, validators=[MinValueValidator(1), MaxValueValidator(1_000_000)]
    )
    late_policy = models.CharField(max_length=16, choices=LatePolicyChoice.choices, default="refuse")
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        app_label = "control"
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(
                condition=Q(sla_class__in=SlaClassChoice.values), name="control_profile_class_is_known"
            ),
            models.CheckConstraint(
                condition=Q(late_policy__in=LatePolicyChoice.values), name="control_profile_policy_is_known"
            ),
            models.CheckConstraint(
                condition=Q(target_p95_ms__gt=0, target_p95_ms__lte=F("deadline_ms")),
                name="control_profile_target_within_deadline",
                violation_error_code="field:target_p95_ms",
                violation_error_message="The target cannot be longer than the deadline.",
            ),
            models.CheckConstraint(
                condition=Q(max_wait_ms__gte=0, max_wait_ms__lt=F("target_p95_ms")),
                name="control_profile_wait_within_target",
                violation_error_code="field:max_wait_ms",
                violation_error_message="Waiting for companions must leave room within the target.",
            ),
            models.CheckConstraint(
                condition=Q(max_batch_size__gte=1, max_queue__gte=1, weight__gt=0),
                name="control_profile_bounds_positive",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class ProfileBinding(models.Model):
    """Who gets a profile: tenant × model × endpoint, where an absent one stands for all."""

    id = PrefixedIdField("bnd_")
    profile = models.ForeignKey(SlaProfile, models.PROTECT, related_name="bindings")
    tenant = models.ForeignKey("tenants.Tenant", models.CASCADE, null=True, blank=True, related_name="+")
    model = models.ForeignKey("control.Model", models.CASCADE, null=True, blank=True, related_name="bindings")
    endpoint = models.CharField(  # noqa: DJ001 - absent is "every endpoint", not an empty name
        max_length=16, null=True, blank=True, choices=[(name, name) for name in ENDPOINTS]
    )
    created_at = models.DateTimeField(auto_now_add=True)

    objects: ClassVar[SharedScopedManager[ProfileBinding]] = SharedScopedManager()

    class Meta:
        app_label = "control"
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "model", "endpoint"],
                nulls_distinct=False,
                name="control_binding_target_is_unique",
                violation_error_message="Something else was bound to the same target at the same moment.",
            ),
            models.CheckConstraint(
                condition=Q(endpoint__isnull=True) | Q(endpoint__in=ENDPOINTS),
                name="control_binding_endpoint_is_known",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.profile} for {self.scope_text}"

    @property
    def is_default(self) -> bool:
        """Whether this is the platform's default, which every request falls back to."""
        return self.tenant_id is None and self.model_id is None and self.endpoint is None

    @property
    def scope_text(self) -> str:
        """`acme-chat × minilm × embeddings`, or `everything`."""
        parts = (self.tenant, self.model, self.endpoint)
        return " × ".join(str(part) for part in parts if part is not None) or "everything"
