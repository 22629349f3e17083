"""Organisations: groups of tenants with people of their own who look after them. Made by operators, never deleted."""

from __future__ import annotations

from typing import Any, ClassVar

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q
from django.db.models.functions import Lower
from django.utils import timezone

from tenants.ids import PrefixedIdField

MAX_TENANTS = 1000


class Organisation(models.Model):
    id = PrefixedIdField("org_")
    name = models.CharField(max_length=100)
    max_tenants = models.PositiveIntegerField(
        default=10, validators=[MinValueValidator(1), MaxValueValidator(MAX_TENANTS)]
    )
    """How many tenants its admins may bring it to."""
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ("name",)
        constraints: ClassVar = [
            models.UniqueConstraint(
                Lower("name"),
                name="organisation_name_unique_any_case",
                violation_error_code="field:name",
                violation_error_message="Another organisation has this name.",
            ),
            models.CheckConstraint(
                name="organisation_max_tenants_in_range",
                condition=Q(max_tenants__gte=1, max_tenants__lte=MAX_TENANTS),
            ),
        ]

    def __str__(self) -> str:
        return self.name

    def facts(self) -> dict[str, Any]:
        """What may be changed about it."""
        return {"name": self.name, "max_tenants": self.max_tenants}


class OrganisationAdmin(models.Model):
    """A person with an admin's rights in every tenant of an organisation, the ones to come included."""

    id = PrefixedIdField("oad_")
    organisation = models.ForeignKey(Organisation, on_delete=models.PROTECT, related_name="admins")
    user = models.ForeignKey("tenants.User", on_delete=models.CASCADE, related_name="organisations")
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name = "organisation admin"
        ordering = ("user__username",)
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["organisation", "user"],
                name="organisation_admin_once",
                violation_error_code="field:login",
                violation_error_message="This person is an admin of it already.",
            )
        ]

    def __str__(self) -> str:
        return f"{self.user.get_username()} of {self.organisation.name}"
