"""Where people are signed in, and who was asked to join. `tenants.models` has the people themselves."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.db.models.functions import Lower
from django.utils import timezone

from tenants.ids import PrefixedIdField
from tenants.roles import Role
from tenants.scoping import TenantScopedManager


class UserSession(models.Model):
    """One browser in which a person is signed in: Django's session has the state, this says whose and where."""

    id = PrefixedIdField("ses_")
    user = models.ForeignKey("tenants.User", on_delete=models.CASCADE, related_name="sessions")
    session_key = models.CharField(max_length=40, unique=True, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    last_seen_at = models.DateTimeField(default=timezone.now)
    """Exact to a minute."""
    ip = models.GenericIPAddressField(null=True)
    user_agent = models.CharField(max_length=256, blank=True)

    class Meta:
        verbose_name = "session"
        ordering = ("-last_seen_at",)
        indexes: ClassVar = [models.Index(fields=["user", "-last_seen_at"], name="session_by_user")]

    def __str__(self) -> str:
        return f"{self.user.get_username()} at {self.ip or 'an unknown address'}"


class Invitation(models.Model):
    """An address that was asked to join a tenant. The link's secret is sent once; only its digest stays."""

    id = PrefixedIdField("inv_")
    tenant = models.ForeignKey("tenants.Tenant", on_delete=models.PROTECT, related_name="invitations")
    email = models.EmailField()
    role = models.CharField(max_length=16, choices=[(role.value, role.value) for role in Role])
    digest = models.BinaryField(max_length=32, unique=True, editable=False)
    proves_address = models.BooleanField()
    """Whether using the link shows that the address is theirs: it went there by mail, or an operator answers for it."""
    inviter = models.ForeignKey(
        "tenants.User", on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    inviter_name = models.CharField(max_length=150)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    expires_at = models.DateTimeField()
    accepted_at = models.DateTimeField(null=True, blank=True)
    withdrawn_at = models.DateTimeField(null=True, blank=True)

    objects: ClassVar[TenantScopedManager[Invitation]] = TenantScopedManager()

    class Meta:
        ordering = ("-created_at",)
        constraints: ClassVar = [
            models.UniqueConstraint(
                "tenant",
                Lower("email"),
                condition=Q(accepted_at__isnull=True, withdrawn_at__isnull=True),
                name="invitation_open_once_per_address",
                violation_error_code="field:email",
                violation_error_message="This address was invited already: send that invitation again.",
            ),
            models.CheckConstraint(
                name="invitation_role_known", condition=Q(role__in=[role.value for role in Role])
            ),
        ]

    def __str__(self) -> str:
        return f"{self.email} ({self.role})"

    @property
    def state(self) -> str:
        """`pending`, `expired`, `accepted` or `withdrawn`."""
        if self.accepted_at is not None:
            return "accepted"
        if self.withdrawn_at is not None:
            return "withdrawn"
        return "expired" if self.expires_at <= timezone.now() else "pending"
