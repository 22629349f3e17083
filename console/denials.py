"""Denied attempts are events: who asked for what they may not do, at most once a minute for each address."""

from __future__ import annotations

from hashlib import sha256

import structlog
from django.core.cache import cache
from django.db import DatabaseError, transaction
from django.http import HttpRequest
from redis.exceptions import RedisError

from console.requests import actor_of
from tenants.actors import Actor
from tenants.audit import Target, record
from tenants.models import Tenant

log = structlog.get_logger(__name__)

QUIET_S = 60
"""For so long a repetition by the same actor at the same address is not written again: a trail is no target."""
MAX_PATH_CHARS = 200


def record_denied(request: HttpRequest, reason: str, tenant_id: str | None = None) -> bool:
    """Write `access.denied`; False for a repetition, and where it cannot be written: the refusal stands anyway.

    `tenant_id`: in which tenant the right is missing; without it, the one that is looked at.
    """
    actor = actor_of(request)
    try:
        if not _is_first(actor, request):
            return False
        _record(actor, request, reason, tenant_id)
    except (DatabaseError, RedisError) as error:
        log.warning("audit.denial_not_written", error=str(error), path=request.path)
        return False
    return True


def _is_first(actor: Actor, request: HttpRequest) -> bool:
    what = f"{actor.type} {actor.id} {request.method} {request.path}"
    return bool(cache.add(f"denied:{sha256(what.encode()).hexdigest()}", 1, QUIET_S))


@transaction.atomic
def _record(actor: Actor, request: HttpRequest, reason: str, tenant_id: str | None) -> None:
    """In the chain of the tenant whose right is missing, so that its people see who tried."""
    match = request.resolver_match
    record(
        by=actor,
        action="access.denied",
        target=Target("address", match.view_name if match else "", request.path[:MAX_PATH_CHARS]),
        after={"method": request.method},
        tenant=_tenant(actor, request, tenant_id),
        outcome="failure",
        reason=reason,
    )


def _tenant(actor: Actor, request: HttpRequest, tenant_id: str | None) -> Tenant | None:
    if tenant_id is not None:
        return Tenant.objects.filter(pk=tenant_id).first()
    chosen = getattr(request, "tenant", None)
    if isinstance(chosen, Tenant):
        return chosen
    only = sorted(actor.tenant_ids)
    return Tenant.objects.filter(pk=only[0]).first() if len(only) == 1 else None
