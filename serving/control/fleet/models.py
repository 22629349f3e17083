"""What should run where, and what is seen to run."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec
from django.db import models
from django.db.models import Q
from django.utils import timezone

from serving.contract import DeviceInfo
from serving.control.fleet import states
from tenants.ids import PrefixedIdField

HOST_SILENT_AFTER = timedelta(seconds=15)
"""Three missed heartbeats: what runs there is no longer known."""


class Host(models.Model):
    """A machine with an agent. It appears with its first heartbeat."""

    id = PrefixedIdField("hst_")
    name = models.CharField(max_length=200, unique=True)
    epoch = models.BigIntegerField(default=0)
    devices = models.JSONField(default=list)
    features = models.JSONField(default=list, blank=True)
    """What its workers can use beyond the ordinary, as its agent found it."""
    replica_dir = models.CharField(max_length=400)
    last_seen_at = models.DateTimeField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        app_label = "control"
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    def is_live(self, now: datetime | None = None) -> bool:
        """Whether a heartbeat came in the last 15 s."""
        return self.last_seen_at > (now or timezone.now()) - HOST_SILENT_AFTER

    def device_infos(self) -> tuple[DeviceInfo, ...]:
        return msgspec.convert(self.devices, tuple[DeviceInfo, ...])


class Deployment(models.Model):
    """A model's serving: one version, so many replicas. A model has at most one active deployment."""

    id = PrefixedIdField("dep_")
    model = models.ForeignKey("control.Model", models.CASCADE, related_name="deployments")
    version = models.ForeignKey("control.Version", models.PROTECT, related_name="deployments")
    replicas_wanted = models.PositiveIntegerField(default=1)
    device = models.CharField(max_length=16, default="cpu")
    """`cpu`, `cuda` (any accelerator of a host) or `cuda:N`."""
    threads = models.PositiveIntegerField(default=1)
    state = models.CharField(
        max_length=16, default="active", choices=[(state, state) for state in states.DEPLOYMENT_STATES]
    )
    state_reason = models.TextField(blank=True, default="")
    """Why it does not run as wished, in words; empty when it does."""
    created_by = models.CharField(max_length=200)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        app_label = "control"
        ordering = ["-created_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["model"], condition=Q(state="active"), name="control_deployment_one_active_per_model"
            ),
            models.CheckConstraint(
                condition=Q(state__in=states.DEPLOYMENT_STATES), name="control_deployment_state_is_known"
            ),
            models.CheckConstraint(
                condition=Q(replicas_wanted__lte=256, threads__gte=1, threads__lte=256),
                name="control_deployment_size_is_bounded",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.model} on {self.replicas_wanted} × {self.device}"

    @property
    def is_active(self) -> bool:
        return self.state == "active"

    @property
    def ready_count(self) -> int:
        """Replicas of the wanted version that are ready (uses prefetched replicas when there are some)."""
        return sum(
            replica.is_wanted and replica.state == "ready" and replica.version_id == self.version_id
            for replica in self.replicas.all()
        )

    @property
    def is_ready(self) -> bool:
        """Everything wanted is ready."""
        return self.is_active and self.ready_count >= self.replicas_wanted


class Replica(models.Model):
    """One worker process that should exist (`is_wanted`), or did; and what its agent last saw of it."""

    id = PrefixedIdField("rep_")
    deployment = models.ForeignKey(Deployment, models.CASCADE, related_name="replicas")
    version = models.ForeignKey("control.Version", models.PROTECT, related_name="replicas")
    host = models.ForeignKey(Host, models.CASCADE, related_name="replicas")
    slot = models.PositiveIntegerField()
    """Ordinal within its deployment; the name people see: `minilm #2`."""
    device = models.CharField(max_length=16)
    threads = models.PositiveIntegerField(default=1)
    cpu_core = models.PositiveIntegerField(null=True, blank=True)
    address = models.CharField(max_length=400)
    is_wanted = models.BooleanField(default=True)

    state = models.CharField(
        max_length=16, default="pending", choices=[(state, state) for state in states.REPLICA_STATES]
    )
    reason = models.TextField(blank=True, default="")
    epoch = models.BigIntegerField(default=0)
    pid = models.BigIntegerField(null=True, blank=True)
    restarts = models.PositiveIntegerField(default=0)
    memory_bytes = models.BigIntegerField(null=True, blank=True)
    load_s = models.FloatField(null=True, blank=True)
    ready_at = models.DateTimeField(null=True, blank=True)
    ready_counted_at = models.DateTimeField(null=True, blank=True)
    """Up to when its ready time was added up; None while it is not ready."""
    reported_at = models.DateTimeField(null=True, blank=True)
    state_changed_at = models.DateTimeField(default=timezone.now)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        app_label = "control"
        ordering = ["deployment", "slot", "created_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["deployment", "slot"],
                condition=Q(is_wanted=True),
                name="control_replica_slot_is_unique",
            ),
            models.CheckConstraint(
                condition=Q(state__in=states.REPLICA_STATES), name="control_replica_state_is_known"
            ),
        ]
        indexes = [
            models.Index(fields=["host"], name="control_replica_wanted", condition=Q(is_wanted=True)),
        ]

    def __str__(self) -> str:
        return f"{self.deployment.model} #{self.slot}"
