"""How long a trail stays in the database, and the files that hold what was before."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import F, Q
from django.utils import timezone

from tenants.ids import PrefixedIdField
from tenants.scoping import TenantScopedManager
from tenants.trail.models import HASH_BYTES

MIN_MONTHS, MAX_MONTHS = 1, 120


class AuditRetention(models.Model):
    """Months that the events of one chain stay in the database; without a row they stay for ever."""

    chain = models.CharField(max_length=20, primary_key=True)
    tenant_id = models.CharField(max_length=20, null=True, blank=True)  # noqa: DJ001 - absent, not empty
    months = models.IntegerField()

    objects: ClassVar[TenantScopedManager[AuditRetention]] = TenantScopedManager()

    class Meta:
        app_label = "tenants"
        constraints: ClassVar = [
            models.CheckConstraint(
                name="audit_retention_months_in_range",
                condition=Q(months__gte=MIN_MONTHS) & Q(months__lte=MAX_MONTHS),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.chain} {self.months}"


class ArchiveManager(TenantScopedManager["AuditArchive"]):
    """Leaves the marks in the database: they are searched there, and large."""

    def get_queryset(self) -> models.QuerySet[AuditArchive]:
        return super().get_queryset().defer("event_marks")


class AuditArchive(models.Model):
    """A file that holds the events of one chain from a position to another. Never changed, never deleted.

    The trigger that refuses DELETE lets an event go whose position such a row covers, and no other.
    """

    id = PrefixedIdField("arc_")
    tenant_id = models.CharField(max_length=20, null=True, blank=True)  # noqa: DJ001 - absent, not empty
    chain = models.CharField(max_length=20)
    first_position = models.BigIntegerField()
    last_position = models.BigIntegerField()
    first_at = models.DateTimeField()
    last_at = models.DateTimeField()
    prev_hash = models.BinaryField(max_length=HASH_BYTES)
    last_hash = models.BinaryField(max_length=HASH_BYTES)
    size_bytes = models.BigIntegerField()
    sha256 = models.CharField(max_length=64)
    manifest = models.JSONField()
    event_marks = models.BinaryField(default=b"", editable=False)
    """Eight bytes for each event (`finding.mark_of`), in the order of the file."""
    created_at = models.DateTimeField(default=timezone.now)

    objects: ClassVar[ArchiveManager] = ArchiveManager()

    class Meta:
        app_label = "tenants"
        ordering = ("chain", "first_position")
        verbose_name = "audit archive"
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["chain", "first_position"], name="audit_archive_once_from_position"
            ),
            models.CheckConstraint(
                name="audit_archive_is_not_empty",
                condition=Q(first_position__gte=1) & Q(last_position__gte=F("first_position")),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.chain} {self.first_position}-{self.last_position}"

    @property
    def rows(self) -> int:
        return self.last_position - self.first_position + 1
