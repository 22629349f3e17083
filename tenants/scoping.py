"""Tenant-owned models show the rows of the scope, and raise outside any: forgetting a filter is never a leak.

A queryset keeps the scope it was created in as its filter. PostgreSQL applies the scope in which it is evaluated
(`tenants.rowsecurity`), so evaluate it inside.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

from django.db import models

from tenants.scopes import Scope, ScopeError, all_tenants, current_scope, tenant_scope

__all__ = [
    "PlatformScopedManager",
    "Scope",
    "ScopeError",
    "SharedScopedManager",
    "TenantScopedManager",
    "all_tenants",
    "current_scope",
    "scope_of_row",
    "tenant_scope",
]

_Row = TypeVar("_Row", bound=models.Model, covariant=True)


class TenantScopedManager(models.Manager[_Row]):
    """Default manager of a model with a `tenant_id`: filters by the scope, raises without one."""

    def get_queryset(self) -> models.QuerySet[_Row]:
        scope = current_scope()
        rows = super().get_queryset()
        if scope.tenant_ids is None:
            return rows
        return rows.filter(tenant_id__in=sorted(scope.tenant_ids))


class PlatformScopedManager(models.Manager[_Row]):
    """Of rows about all tenants together: none exist in a narrower scope; behind it: `ProtectPlatformRows`."""

    def get_queryset(self) -> models.QuerySet[_Row]:
        rows = super().get_queryset()
        return rows if current_scope().tenant_ids is None else rows.none()


class SharedScopedManager(TenantScopedManager[_Row]):
    """Of a table whose rows of no tenant are everybody's to read; behind it: `ProtectTenantRows(shared=True)`."""

    def get_queryset(self) -> models.QuerySet[_Row]:
        scope = current_scope()
        rows = models.Manager.get_queryset(self)
        if scope.tenant_ids is None:
            return rows
        return rows.filter(models.Q(tenant_id=None) | models.Q(tenant_id__in=sorted(scope.tenant_ids)))


def scope_of_row(row: models.Model) -> AbstractContextManager[None]:
    """The scope to write `row` in: its own tenant's, whatever the writer looks at. A gate allowed it before."""
    if not hasattr(row, "tenant_id"):
        return nullcontext()
    if row.tenant_id is None:
        return all_tenants("a row of the platform is written")
    return tenant_scope(row.tenant_id)
