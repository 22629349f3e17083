"""What stands beside the audit events: their places in the chains, and signatures over them."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.db.models.functions import Length
from django.db.models.lookups import Exact
from django.utils import timezone

from tenants.ids import PrefixedIdField
from tenants.scoping import TenantScopedManager

HASH_BYTES = 32
SIGNATURE_BYTES = 64


class AuditLink(models.Model):
    """The place of one event in its chain, written by a trigger when the event's transaction commits.

    It holds hashes only, no tenant's data. `chain` is a tenant's id, or `platform` for events of no tenant.
    """

    event_seq = models.BigIntegerField(primary_key=True)
    chain = models.CharField(max_length=20)
    position = models.BigIntegerField()
    """Counted from 1, without gaps, in the order in which transactions committed."""
    prev_hash = models.BinaryField(max_length=HASH_BYTES)
    """Hash of the position before; 32 zero bytes at position 1."""
    hash = models.BinaryField(max_length=HASH_BYTES)

    class Meta:
        app_label = "tenants"
        ordering = ("chain", "position")
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["chain", "position"], name="audit_link_one_per_position"),
            models.CheckConstraint(name="audit_link_position_positive", condition=Q(position__gte=1)),
            models.CheckConstraint(
                name="audit_link_hashes_are_32_bytes",
                condition=Q(Exact(Length("hash"), HASH_BYTES)) & Q(Exact(Length("prev_hash"), HASH_BYTES)),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.chain} {self.position}"


class AuditCheckpoint(models.Model):
    """A signature over how long a chain was, and what its last hash was, at one moment."""

    chain = models.CharField(max_length=20)
    position = models.BigIntegerField()
    hash = models.BinaryField(max_length=HASH_BYTES)
    at = models.DateTimeField(default=timezone.now)
    public_key = models.CharField(max_length=64)
    """Ed25519, 64 hex digits; verification trusts it only when the installation's settings name it."""
    signature = models.BinaryField(max_length=SIGNATURE_BYTES)

    class Meta:
        app_label = "tenants"
        ordering = ("chain", "position")
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["chain", "position", "public_key"], name="audit_checkpoint_once_per_position_and_key"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.chain} {self.position}"


EXPORT_STATES = ("pending", "running", "done", "failed", "expired")


class AuditExport(models.Model):
    """A file of events that somebody asked for. The file outlives nobody's right to see it, nor `expires_at`."""

    id = PrefixedIdField("exp_")
    tenant_id = models.CharField(max_length=20, null=True, blank=True)  # noqa: DJ001 - absent, not empty
    """None is the whole platform: operators only."""
    tenant_name = models.CharField(max_length=100, blank=True, default="")
    format = models.CharField(max_length=16)
    filters = models.JSONField(default=dict)
    state = models.CharField(max_length=16, default="pending")
    error = models.CharField(max_length=300, blank=True, default="")
    rows_total = models.BigIntegerField(null=True)
    rows_done = models.BigIntegerField(default=0)
    size_bytes = models.BigIntegerField(null=True)
    sha256 = models.CharField(max_length=64, blank=True, default="")
    manifest = models.JSONField(null=True)
    requested_by = models.JSONField(default=dict)
    """Type, id and name of the actor."""
    requested_by_name = models.CharField(max_length=150)
    created_at = models.DateTimeField(default=timezone.now)
    progressed_at = models.DateTimeField(null=True)
    """A running export that was not heard of for a while belongs to nobody."""
    finished_at = models.DateTimeField(null=True)
    expires_at = models.DateTimeField(null=True)

    objects: ClassVar[TenantScopedManager[AuditExport]] = TenantScopedManager()

    class Meta:
        app_label = "tenants"
        ordering = ("-created_at", "-id")
        verbose_name = "audit export"
        indexes: ClassVar = [models.Index(fields=["tenant_id", "-created_at"], name="audit_export_by_tenant")]
        constraints: ClassVar = [
            models.CheckConstraint(name="audit_export_state_known", condition=Q(state__in=EXPORT_STATES)),
        ]

    def __str__(self) -> str:
        return f"{self.format} {self.id}"

    @property
    def is_active(self) -> bool:
        return self.state in ("pending", "running")

    @property
    def share_done(self) -> float:
        """0 to 1."""
        if self.state == "done":
            return 1.0
        return min(1.0, self.rows_done / self.rows_total) if self.rows_total else 0.0


class AuditVerification(models.Model):
    """One look through a chain, or through all of them, and what it found."""

    id = PrefixedIdField("avr_")
    tenant_id = models.CharField(max_length=20, null=True, blank=True)  # noqa: DJ001 - absent, not empty
    """Whose chain; None looks through every chain there is."""
    state = models.CharField(max_length=16, default="pending")
    rows = models.BigIntegerField(default=0)
    chains = models.IntegerField(default=0)
    checkpoints = models.IntegerField(default=0)
    broken = models.JSONField(null=True)
    """The first break found: chain, position, seq, what; None when all is whole."""
    requested_by_name = models.CharField(max_length=150)
    created_at = models.DateTimeField(default=timezone.now)
    progressed_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    objects: ClassVar[TenantScopedManager[AuditVerification]] = TenantScopedManager()

    class Meta:
        app_label = "tenants"
        ordering = ("-created_at", "-id")
        verbose_name = "audit verification"
        indexes: ClassVar = [
            models.Index(fields=["tenant_id", "-created_at"], name="audit_verification_by_tenant")
        ]
        constraints: ClassVar = [
            models.CheckConstraint(
                name="audit_verification_state_known", condition=Q(state__in=("pending", "running", "done"))
            ),
        ]

    def __str__(self) -> str:
        return self.id

    @property
    def is_active(self) -> bool:
        return self.state != "done"


class AuditSinkCursor(models.Model):
    """How far events of one chain were handed to one sink. Hashes and positions only, no tenant's data."""

    sink = models.CharField(max_length=300)
    """Address of the sink: another one begins from the first event."""
    chain = models.CharField(max_length=20)
    position = models.BigIntegerField(default=0)

    class Meta:
        app_label = "tenants"
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["sink", "chain"], name="audit_sink_one_cursor_per_chain"),
        ]

    def __str__(self) -> str:
        return f"{self.sink} {self.chain} {self.position}"
