"""What was counted, kept in slices of time: ten seconds, a minute, an hour.

The table is partitioned by resolution and day (`partitions`), so that what has served its time is dropped, not
deleted row by row. Rows outlive the tenants and versions they speak of: ids are no foreign keys.
"""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from tenants.scoping import TenantScopedManager

RESOLUTIONS_S = (10, 60, 3600)
"""Each divides the next."""


class MetricSlice(models.Model):
    """One series in one slice. `tally` is a `serving.telemetry.tally.Tally` as bytes."""

    pk = models.CompositePrimaryKey(
        "tenant_id", "model", "start", "resolution_s", "version_id", "endpoint", "sla_class"
    )
    resolution_s = models.SmallIntegerField()
    start = models.BigIntegerField()
    """Unix seconds."""
    tenant_id = models.CharField(max_length=40)
    model = models.CharField(max_length=100)
    version_id = models.CharField(max_length=40)
    endpoint = models.CharField(max_length=40)
    sla_class = models.CharField(max_length=16)
    answered = models.BigIntegerField()
    failed = models.BigIntegerField()
    tally = models.BinaryField()

    objects: ClassVar[TenantScopedManager[MetricSlice]] = TenantScopedManager()

    class Meta:
        app_label = "control"

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.model} {self.start}+{self.resolution_s}"


class MetricSpan(models.Model):
    """A slice was written, whole: its rows are there, also when it has none. What has no span is a gap."""

    pk = models.CompositePrimaryKey("resolution_s", "start")
    resolution_s = models.SmallIntegerField()
    start = models.BigIntegerField()
    covered_s = models.SmallIntegerField()
    """Seconds of it that any gateway reported on."""

    class Meta:
        app_label = "control"

    def __str__(self) -> str:
        return f"{self.start}+{self.resolution_s}"


class ReplicaSlice(models.Model):
    """One replica in one slice: `serving.telemetry.replica_tally.ReplicaTally`. The platform's, no tenant's."""

    pk = models.CompositePrimaryKey("resolution_s", "start", "replica_id")
    resolution_s = models.SmallIntegerField()
    start = models.BigIntegerField()
    """Unix seconds."""
    replica_id = models.CharField(max_length=40)
    model = models.CharField(max_length=100)
    version_id = models.CharField(max_length=40)
    window_us = models.BigIntegerField()
    busy_us = models.BigIntegerField()
    batches = models.BigIntegerField()
    rows = models.BigIntegerField()
    tokens = models.BigIntegerField()
    executed_tokens = models.BigIntegerField()
    frames = models.BigIntegerField()
    queued_rows = models.BigIntegerField()
    running_rows = models.BigIntegerField()
    most_queued = models.BigIntegerField()
    most_memory_bytes = models.BigIntegerField()
    cost_error_p95 = models.FloatField(null=True)

    class Meta:
        app_label = "control"

    def __str__(self) -> str:
        return f"{self.replica_id} {self.start}+{self.resolution_s}"
