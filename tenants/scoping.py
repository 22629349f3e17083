"""Which tenants' rows exist for the code that is running now.

A tenant-owned model asked outside a scope raises: forgetting a filter is an error, never a leak. Scopes are
context variables, so they follow a request through threads and async tasks and end with the `with` block.
A queryset keeps the scope it was created in, wherever it is evaluated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

from django.db import models

_Row = TypeVar("_Row", bound=models.Model, covariant=True)


class ScopeError(RuntimeError):
    """A tenant-owned model was queried outside any scope: a bug of ours, never of the person who asked."""


@dataclass(frozen=True, slots=True)
class Scope:
    """`tenant_ids` of None means every tenant, for the reason in `why`."""

    tenant_ids: frozenset[str] | None
    why: str = ""


_scope: ContextVar[Scope | None] = ContextVar("tenant_scope", default=None)


def current_scope() -> Scope:
    """Raises `ScopeError` outside any scope."""
    scope = _scope.get()
    if scope is None:
        raise ScopeError("tenant-owned rows were queried outside tenant_scope() or all_tenants()")
    return scope


@contextmanager
def tenant_scope(tenant_ids: str | Iterable[str]) -> Iterator[None]:
    """Only the rows of these tenants exist inside; of none of them, when the collection is empty."""
    ids = frozenset({tenant_ids} if isinstance(tenant_ids, str) else tenant_ids)
    with _entered(Scope(ids)):
        yield


@contextmanager
def all_tenants(why: str) -> Iterator[None]:
    """Rows of every tenant exist inside. `why` is for the reader of the code, and must not be empty."""
    if not why:
        raise ValueError("all_tenants() wants the reason")
    with _entered(Scope(None, why)):
        yield


@contextmanager
def _entered(scope: Scope) -> Iterator[None]:
    token = _scope.set(scope)
    try:
        yield
    finally:
        _scope.reset(token)


class TenantScopedManager(models.Manager[_Row]):
    """Default manager of a model with a `tenant_id`: filters by the scope, raises without one."""

    def get_queryset(self) -> models.QuerySet[_Row]:
        scope = current_scope()
        rows = super().get_queryset()
        if scope.tenant_ids is None:
            return rows
        return rows.filter(tenant_id__in=sorted(scope.tenant_ids))
