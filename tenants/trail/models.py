"""What stands beside the audit events: their places in the chains, and signatures over them."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.db.models.functions import Length
from django.db.models.lookups import Exact
from django.utils import timezone

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
