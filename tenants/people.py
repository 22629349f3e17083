"""Where people are signed in. `tenants.models` has the people themselves."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.utils import timezone

from tenants.ids import PrefixedIdField


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
