"""Keys that end soon: said where people look, and once in the trail, while there is time to roll them."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from tenants.actors import Actor
from tenants.audit import record
from tenants.models import EXPIRY_WARNING, ApiKey
from tenants.scoping import all_tenants

MAX_WARNINGS = 500
"""At one time; the others have their turn soon after."""
_TASKS = Actor.system("tasks")


def ending_keys(now: datetime | None = None) -> QuerySet[ApiKey]:
    """Of the scope the code runs in, the soonest first: those of which `ApiKey.expires_soon` is true."""
    now = now or timezone.now()
    unreplaced = ApiKey.objects.filter(revoked_at=None, replaced_by=None)
    return unreplaced.filter(expires_at__gt=now, expires_at__lte=now + EXPIRY_WARNING).order_by("expires_at")


def warn_of_ending_keys(now: datetime) -> int:
    """`key.expires_soon` into the trail, from where webhooks and syslog carry it on; how many that were."""
    with all_tenants("keys of every tenant expire"):
        untold = ending_keys(now).exclude(warned_of=F("expires_at")).select_related("tenant")
        return sum(_warn(key) for key in list(untold[:MAX_WARNINGS]))


@transaction.atomic
def _warn(key: ApiKey) -> bool:
    # The conditional update is the claim: of two tasks at once only one warns.
    untold = Q(warned_of=None) | ~Q(warned_of=F("expires_at"))
    if not ApiKey.objects.filter(untold, pk=key.pk, revoked_at=None).update(warned_of=key.expires_at):
        return False
    after = {"expires_at": key.expires_at}
    record(by=_TASKS, action="key.expires_soon", target=key, after=after, tenant=key.tenant)
    return True
