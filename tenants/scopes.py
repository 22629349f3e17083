"""Scopes: which tenants' rows exist for the code that is running now.

Context variables, so they follow a request through threads and async tasks and end with the `with` block.
Apart from `tenants.scoping`, because the database backend reads them and loads before any model.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

SETTING = "tidegate.tenants"
"""PostgreSQL's setting that says whose rows a transaction may see (`tenants.rowsecurity`)."""
EVERY_TENANT = "*"
_ID = re.compile(r"\w+")
"""Of what is no tenant's id there are no rows."""


class ScopeError(RuntimeError):
    """A tenant-owned model was queried outside any scope: a bug of ours, never of the person who asked."""


@dataclass(frozen=True, slots=True)
class Scope:
    """`tenant_ids` of None means every tenant, for the reason in `why`."""

    tenant_ids: frozenset[str] | None
    why: str = ""
    setting: str = field(init=False)
    """The scope as PostgreSQL is told it (`tenants.rowsecurity`)."""

    def __post_init__(self) -> None:
        ids = self.tenant_ids
        setting = EVERY_TENANT if ids is None else ",".join(sorted(filter(_ID.fullmatch, ids)))
        object.__setattr__(self, "setting", setting)


_scope: ContextVar[Scope | None] = ContextVar("tenant_scope", default=None)


def current_scope() -> Scope:
    """Raises `ScopeError` outside any scope."""
    scope = _scope.get()
    if scope is None:
        raise ScopeError("tenant-owned rows were queried outside tenant_scope() or all_tenants()")
    return scope


def scope_setting() -> str:
    """What PostgreSQL is told of the scope of the running code: no tenant outside any scope."""
    scope = _scope.get()
    return "" if scope is None else scope.setting


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
