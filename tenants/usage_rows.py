"""The ledger's rows: what was used per minute, and the same sums per hour and day of each tenant's time zone.

Ids and names are copied, so that deleting a key or a version erases no history. Money is in micro-units.
"""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import F, Q

from tenants.scoping import PlatformScopedManager, TenantScopedManager


class UsageSums(models.Model):
    id = models.BigAutoField(primary_key=True)
    model = models.CharField(max_length=100)
    version_id = models.CharField(max_length=32)
    sla_class = models.CharField(max_length=16)
    requests = models.PositiveBigIntegerField(default=0)
    failed = models.PositiveBigIntegerField(default=0)
    cancelled = models.PositiveBigIntegerField(default=0)
    rows = models.PositiveBigIntegerField(default=0)
    tokens = models.PositiveBigIntegerField(default=0)
    device_us = models.PositiveBigIntegerField(default=0)
    cost_micro = models.PositiveBigIntegerField(default=0)
    cancelled_us = models.PositiveBigIntegerField(default=0)
    """Part of `device_us`: spent on requests whose client left before the answer."""

    class Meta:
        abstract = True


class UsageRowBase(UsageSums):
    tenant_id = models.CharField(max_length=20)
    tenant_name = models.CharField(max_length=100, blank=True)
    key_id = models.CharField(max_length=16)
    key_name = models.CharField(max_length=100, blank=True)

    class Meta:
        abstract = True


class UsageMinute(UsageRowBase):
    """The ledger: one minute of one tenant × key × model × version × class."""

    minute = models.DateTimeField()

    objects: ClassVar[TenantScopedManager[UsageMinute]] = TenantScopedManager()

    class Meta:
        ordering = ("-minute",)
        constraints: ClassVar = [
            # Tenant first: it also serves every read, which names a tenant and a span of minutes.
            models.UniqueConstraint(
                fields=["tenant_id", "minute", "key_id", "model", "version_id", "sla_class"],
                name="usage_one_row_per_minute_and_dimension",
            ),
            models.CheckConstraint(
                name="usage_outcomes_within_requests",
                condition=Q(requests__gte=F("failed") + F("cancelled")),
            ),
        ]
        indexes: ClassVar = [models.Index(fields=["minute"], name="usage_by_minute")]

    def __str__(self) -> str:
        return f"{self.tenant_name} {self.model} {self.minute:%F %R}"


class UsageHour(UsageRowBase):
    """Sums of one hour. `hour` is the moment at which an hour of the tenant's own clock began."""

    hour = models.DateTimeField()

    objects: ClassVar[TenantScopedManager[UsageHour]] = TenantScopedManager()

    class Meta:
        ordering = ("-hour",)
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["tenant_id", "hour", "key_id", "model", "version_id", "sla_class"],
                name="usage_one_row_per_hour_and_dimension",
            )
        ]
        indexes: ClassVar = [models.Index(fields=["hour"], name="usage_by_hour")]

    def __str__(self) -> str:
        return f"{self.tenant_name} {self.model} {self.hour:%F %R}"


class UsageDay(UsageRowBase):
    """Sums of one day of the tenant's own calendar. Kept for ever."""

    day = models.DateField()

    objects: ClassVar[TenantScopedManager[UsageDay]] = TenantScopedManager()

    class Meta:
        ordering = ("-day",)
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["tenant_id", "day", "key_id", "model", "version_id", "sla_class"],
                name="usage_one_row_per_day_and_dimension",
            )
        ]
        indexes: ClassVar = [models.Index(fields=["day"], name="usage_by_day")]

    def __str__(self) -> str:
        return f"{self.tenant_name} {self.model} {self.day}"


class UsageWeek(UsageRowBase):
    """Sums of the days from one Monday to the next: a question about a quarter reads a third of its rows."""

    week = models.DateField()
    """The Monday."""

    objects: ClassVar[TenantScopedManager[UsageWeek]] = TenantScopedManager()

    class Meta:
        ordering = ("-week",)
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["tenant_id", "week", "key_id", "model", "version_id", "sla_class"],
                name="usage_one_row_per_week_and_dimension",
            )
        ]
        indexes: ClassVar = [models.Index(fields=["week"], name="usage_by_week")]

    def __str__(self) -> str:
        return f"{self.tenant_name} {self.model} week of {self.week}"


class UsagePlatformDay(UsageSums):
    """Sums of one day over every tenant, each by its own calendar: some rows where `UsageDay` has thousands.

    Belongs to no tenant, and is there only for who may see them all.
    """

    day = models.DateField()

    objects: ClassVar[PlatformScopedManager[UsagePlatformDay]] = PlatformScopedManager()

    class Meta:
        ordering = ("-day",)
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["day", "model", "version_id", "sla_class"],
                name="usage_one_row_per_platform_day_and_dimension",
            )
        ]

    def __str__(self) -> str:
        return f"{self.model} {self.day}"
