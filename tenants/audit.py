"""The audit trail: one row per write, in the write's own transaction."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from django.db import models, transaction

from tenants.actors import Actor
from tenants.keys import masked
from tenants.models import AuditEvent, Tenant
from tenants.scoping import all_tenants

Facts = Mapping[str, Any]
Outcome = Literal["success", "failure"]

# Counts of tokens are no secrets.
_SECRET = re.compile(r"secret|password|digest|token(?!s\b|s_)|pepper", re.IGNORECASE)
_TARGET_NAME_CHARS = 200
HIDDEN = "***"


@dataclass(frozen=True, slots=True)
class Target:
    """What an action was done to, by value: the row may be gone when the event is read."""

    type: str
    id: str
    name: str

    @classmethod
    def of(cls, row: models.Model) -> Target:
        kind = str(row._meta.verbose_name).lower().replace(" ", "_")
        return cls(kind, str(row.pk), str(row)[:_TARGET_NAME_CHARS])


def record(
    *,
    by: Actor,
    action: str,
    target: models.Model | Target,
    before: Facts | None = None,
    after: Facts | None = None,
    tenant: Tenant | None = None,
    outcome: Outcome = "success",
    reason: str = "",
) -> AuditEvent:
    """Write one event. `action` is dotted past tense (`key.revoked`); `before`/`after` hold what changed.

    Values under names that sound like secrets are hidden, and keys wherever they are. Raises `RuntimeError` outside a transaction: an
    event that could outlive a rolled-back change would be a lie.
    """
    if not transaction.get_connection().in_atomic_block:
        raise RuntimeError("an audit event is recorded inside the transaction of what it records")
    what = target if isinstance(target, Target) else Target.of(target)
    with all_tenants("an event is written, none is read"):
        return AuditEvent.objects.create(
            tenant_id=tenant.pk if tenant else None,
            tenant_name=tenant.name if tenant else "",
            actor_type=by.type,
            actor_id=by.id,
            actor_name=by.name,
            action=action,
            target_type=what.type,
            target_id=masked(what.id),
            target_name=masked(what.name),
            outcome=outcome,
            reason=masked(reason),
            before=_shown(before),
            after=_shown(after),
            request_id=by.request_id,
            trace_id=by.trace_id,
            ip=by.ip,
            user_agent=masked(by.user_agent),
        )


def changed(before: Facts, after: Facts) -> tuple[dict[str, Any], dict[str, Any]]:
    """Only the fields whose value differs, on both sides."""
    names = [name for name in after if before.get(name) != after[name]]
    return {name: before.get(name) for name in names}, {name: after[name] for name in names}


def _shown(facts: Facts | None) -> dict[str, Any] | None:
    if facts is None:
        return None
    return {masked(name): HIDDEN if _is_secret(name) else _plain(value) for name, value in facts.items()}


def _is_secret(name: str) -> bool:
    return _SECRET.search(name) is not None


def _plain(value: Any) -> Any:
    """JSON's own kinds as they are, collections as lists, everything else as text."""
    if isinstance(value, str):
        return masked(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return _shown(value)
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    return value.isoformat() if hasattr(value, "isoformat") else masked(str(value))
