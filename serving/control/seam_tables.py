"""The two tables of the seam, as the control plane sees them. `serving.seam.postgres` reads them without Django."""

from __future__ import annotations

import secrets
from functools import partial

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now


class ConfigClock(models.Model):
    """The one row every publication updates: its lock puts versions in the order of their commits."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    version = models.BigIntegerField(default=0)
    floor = models.BigIntegerField(default=0)
    """Newest version among the pruned deletions; whoever is behind it must read everything."""
    history = models.CharField(max_length=32, default=partial(secrets.token_hex, 8))
    """Names this line of versions; drawn once per database."""

    class Meta:
        app_label = "control"
        db_table = "control_config_clock"
        constraints = [
            models.CheckConstraint(condition=Q(id=1), name="control_clock_is_one_row"),
            models.CheckConstraint(condition=Q(floor__lte=F("version")), name="control_clock_floor_is_past"),
        ]

    def __str__(self) -> str:
        return f"version {self.version}"


class ConfigEntry(models.Model):
    """One config entry as last published; a deletion stays as a tombstone until it is pruned."""

    kind = models.CharField(max_length=16)
    key = models.CharField(max_length=128)
    version = models.BigIntegerField(unique=True)
    body = models.JSONField(null=True)
    deleted = models.BooleanField(default=False)
    published_at = models.DateTimeField(db_default=Now())

    class Meta:
        app_label = "control"
        db_table = "control_config_entry"
        constraints = [
            models.UniqueConstraint(fields=["kind", "key"], name="control_entry_is_unique"),
            models.CheckConstraint(
                condition=Q(deleted=True, body__isnull=True) | Q(deleted=False, body__isnull=False),
                name="control_entry_body_unless_deleted",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind}/{self.key}@{self.version}"


class ReportRow(models.Model):
    """One report of a data-plane process; unique by (process, sequence), applied once, poison set aside."""

    process = models.CharField(max_length=200)
    sequence = models.BigIntegerField()
    kind = models.CharField(max_length=16)
    body = models.JSONField()
    received_at = models.DateTimeField(db_default=Now())
    applied_at = models.DateTimeField(null=True)
    error = models.TextField(blank=True, default="")
    """Why it could not be applied. Set aside: nobody tries again until an operator clears it."""

    class Meta:
        app_label = "control"
        db_table = "control_report"
        constraints = [
            models.UniqueConstraint(fields=["process", "sequence"], name="control_report_is_unique"),
        ]
        indexes = [
            # Ingestion looks only at what is still to do; retention only at what is done.
            models.Index(
                fields=["id"], name="control_report_waiting", condition=Q(applied_at__isnull=True, error="")
            ),
            models.Index(
                fields=["kind", "applied_at"],
                name="control_report_done",
                condition=Q(applied_at__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.process}#{self.sequence} {self.kind}"
