"""Models, their versions and artifacts. Platform-owned: a tenant sees a model through a grant, never owns it."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import msgspec
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.db.models import F, Q

from serving.contract import CostCurve, MeasuredPoint, TensorSpec
from serving.control.catalog import artifacts, states
from tenants.ids import PrefixedIdField
from tenants.scoping import TenantScopedManager

MODEL_NAME = r"^[a-z0-9][a-z0-9._-]{0,62}$"
MAX_POOL = 1_000_000_000
ALIAS_NAME = r"^[a-z][a-z0-9_-]{0,30}$"


class ArtifactFormat(models.TextChoices):
    ENCODER = "encoder", "safetensors directory"
    PT2 = "pt2", "torch.export program"
    ONNX = "onnx", "ONNX model"
    PYTHON = "python", "Python code"


class Engine(models.TextChoices):
    ENCODER = "encoder", "Encoder (text)"
    TENSOR = "tensor", "Tensor program"
    ONNX = "onnx", "ONNX model"
    PYTHON = "python", "Python (trusted code)"
    ECHO = "echo", "Echo (benchmarks)"


class Idle(models.TextChoices):
    """Who bears what a model's replicas cost while they stand ready and nobody asks anything of them."""

    NONE = "none", "Nobody"
    BY_USE = "by_use", "Tenants that used it in the hour, by device time"
    BY_GRANT = "by_grant", "Tenants that may use it, evenly"
    BY_GUARANTEE = "by_guarantee", "Tenants with a guaranteed share, by its size"


class Model(models.Model):
    """What tenants call by name. Its versions come and go behind it."""

    id = PrefixedIdField("mdl_")
    name = models.CharField(
        max_length=63,
        unique=True,
        validators=[RegexValidator(MODEL_NAME, "Lower-case letters, digits, '.', '_' and '-'; at most 63.")],
    )
    description = models.TextField(blank=True, default="")
    is_public = models.BooleanField(default=True)
    """Every tenant may use it; otherwise only those with a grant."""
    last_number = models.PositiveIntegerField(default=0)
    """Number of the newest version; counted here, under the row's lock, so that numbers never repeat."""
    pool_requests_per_s = models.PositiveIntegerField(
        null=True, blank=True, validators=[MinValueValidator(1), MaxValueValidator(MAX_POOL)]
    )
    pool_concurrency = models.PositiveIntegerField(
        null=True, blank=True, validators=[MinValueValidator(1), MaxValueValidator(MAX_POOL)]
    )
    """What all tenants may ask of it together: each what is guaranteed to it, the rest whoever comes first."""
    idle_policy = models.CharField(max_length=16, choices=Idle.choices, default=Idle.NONE)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        app_label = "control"
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(
                condition=Q(idle_policy__in=Idle.values), name="control_model_idle_policy_is_known"
            ),
            models.CheckConstraint(
                condition=Q(name__regex=MODEL_NAME), name="control_model_name_is_wellformed"
            ),
        ]

    def __str__(self) -> str:
        return self.name


class ModelGrant(models.Model):
    """One tenant's permission to use a model that is not public."""

    model = models.ForeignKey(Model, models.CASCADE, related_name="grants")
    tenant = models.ForeignKey("tenants.Tenant", models.CASCADE, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    objects: ClassVar[TenantScopedManager[ModelGrant]] = TenantScopedManager()

    class Meta:
        app_label = "control"
        constraints = [
            models.UniqueConstraint(fields=["model", "tenant"], name="control_grant_is_unique"),
        ]

    def __str__(self) -> str:
        return f"{self.model_id} for {self.tenant_id}"


class Artifact(models.Model):
    """Stored bytes, named by their content. Never changed, so versions may share one."""

    sha256 = models.CharField(primary_key=True, max_length=64)
    format = models.CharField(max_length=16, choices=ArtifactFormat.choices)
    size_bytes = models.PositiveBigIntegerField()
    file_count = models.PositiveIntegerField()
    created_at = models.DateTimeField(auto_now_add=True)
    created_by = models.CharField(max_length=200)

    class Meta:
        app_label = "control"
        constraints = [
            models.CheckConstraint(
                condition=Q(sha256__regex=r"^[0-9a-f]{64}$"), name="control_artifact_sha256_is_hex"
            ),
            models.CheckConstraint(
                condition=Q(format__in=ArtifactFormat.values), name="control_artifact_format_is_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.format} {self.sha256[:12]}"

    @property
    def path(self) -> Path:
        """Absolute path of the unpacked directory, or of the single `.pt2` / `.onnx` file."""
        return artifacts.path_of(self.sha256, self.format)


class Version(models.Model):
    """One immutable build of a model: artifact, engine, options; and what validation measured of it."""

    id = PrefixedIdField("mv_")
    model = models.ForeignKey(Model, models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    engine = models.CharField(max_length=16, choices=Engine.choices)
    artifact = models.ForeignKey(Artifact, models.PROTECT, related_name="versions", null=True, blank=True)
    options = models.JSONField(default=dict, blank=True)
    state = models.CharField(max_length=16, default="registered", choices=[(s, s) for s in states.STATES])
    state_reason = models.TextField(blank=True, default="")
    state_changed_at = models.DateTimeField(auto_now_add=True)
    validation_attempt = models.PositiveIntegerField(default=0)
    validation_host = models.CharField(max_length=200, blank=True, default="")

    inputs = models.JSONField(default=list, blank=True)
    outputs = models.JSONField(default=list, blank=True)
    cost = models.JSONField(null=True, blank=True)
    points = models.JSONField(default=list, blank=True)
    memory_bytes = models.PositiveBigIntegerField(null=True, blank=True)
    load_s = models.FloatField(null=True, blank=True)
    warm_up_s = models.FloatField(null=True, blank=True)
    notes = models.JSONField(default=list, blank=True)
    """How the engine executes the version, in sentences for a person; measured with the rest."""
    validated_at = models.DateTimeField(null=True, blank=True)

    fallback_version = models.ForeignKey(
        "self", models.SET_NULL, null=True, blank=True, related_name="fallback_of"
    )
    fallback_model = models.ForeignKey(
        Model, models.SET_NULL, null=True, blank=True, related_name="fallback_of"
    )
    """What answers when this version cannot: at most one of the two."""
    price_micro_per_device_hour = models.PositiveBigIntegerField(default=0)
    trusted_by = models.CharField(max_length=200, blank=True, default="")
    trusted_reason = models.TextField(blank=True, default="")
    trusted_at = models.DateTimeField(null=True, blank=True)
    created_by = models.CharField(max_length=200)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        app_label = "control"
        ordering = ["model", "-number"]
        constraints = [
            models.UniqueConstraint(fields=["model", "number"], name="control_version_number_is_unique"),
            models.CheckConstraint(condition=Q(number__gte=1), name="control_version_number_starts_at_one"),
            models.CheckConstraint(
                condition=Q(state__in=states.STATES), name="control_version_state_is_known"
            ),
            models.CheckConstraint(
                condition=Q(engine__in=Engine.values), name="control_version_engine_is_known"
            ),
            models.CheckConstraint(
                condition=Q(engine="echo", artifact=None) | (~Q(engine="echo") & Q(artifact__isnull=False)),
                name="control_version_has_artifact_unless_echo",
            ),
            models.CheckConstraint(
                condition=~Q(engine="python", state__in=["validating", "ready"]) | ~Q(trusted_by=""),
                name="control_version_python_runs_only_trusted",
            ),
            models.CheckConstraint(
                condition=Q(fallback_version=None) | Q(fallback_model=None),
                name="control_version_has_one_fallback",
            ),
        ]
        indexes = [
            models.Index(
                F("state_changed_at"), name="control_version_validating", condition=Q(state="validating")
            )
        ]

    def __str__(self) -> str:
        return f"{self.model.name}/{self.number}"

    @property
    def is_ready(self) -> bool:
        return self.state == "ready"

    @property
    def is_trusted(self) -> bool:
        return bool(self.trusted_by)

    def input_specs(self) -> tuple[TensorSpec, ...]:
        return msgspec.convert(self.inputs, tuple[TensorSpec, ...])

    def output_specs(self) -> tuple[TensorSpec, ...]:
        return msgspec.convert(self.outputs, tuple[TensorSpec, ...])

    def cost_curve(self) -> CostCurve | None:
        """None until validation has measured the version."""
        return msgspec.convert(self.cost, CostCurve | None)

    def measured_points(self) -> tuple[MeasuredPoint, ...]:
        return msgspec.convert(self.points, tuple[MeasuredPoint, ...])


class ModelAlias(models.Model):
    """A name such as `champion` for one version of a model; moves atomically."""

    model = models.ForeignKey(Model, models.CASCADE, related_name="aliases")
    alias = models.CharField(max_length=31, validators=[RegexValidator(ALIAS_NAME)])
    version = models.ForeignKey(Version, models.CASCADE, related_name="aliases")
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        app_label = "control"
        ordering = ["alias"]
        constraints = [
            models.UniqueConstraint(fields=["model", "alias"], name="control_alias_is_unique"),
            models.CheckConstraint(condition=Q(alias__regex=ALIAS_NAME), name="control_alias_is_wellformed"),
        ]

    def __str__(self) -> str:
        return f"{self.alias} → version {self.version.number}"
