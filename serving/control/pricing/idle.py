"""What stands ready and does nothing costs money too: who bears it, as the model's policy says.

Replicas are looked at every few seconds; the time between two looks at which one was ready is added up per hour and
version, with what it would have cost. An hour's idle time, what was ready less what requests took, is spread when the
hour's usage has arrived, as rows of the ledger with a class of their own: every sum of it holds them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog
from django.db import transaction
from django.db.models import QuerySet, Sum

from serving.control.catalog.models import Idle, Model, ModelGrant
from serving.control.pricing.models import ReadyHour
from serving.control.quotas.models import Quota
from serving.prices import PARTS_PER_MICRO
from tenants.models import Tenant, UsageMinute
from tenants.scoping import all_tenants
from tenants.usage import record_usage
from tenants.usage_columns import IDLE_CLASS

log = structlog.get_logger(__name__)

HOUR = timedelta(hours=1)
SETTLED_AFTER = timedelta(minutes=15)
"""The end of the hour: what gateways counted in it is in the ledger, outages of some minutes included."""
_HOURS_A_STEP = 50
_PROCESS = "idle"
_WHY = "idle time is spread over tenants"
Bearer = tuple[str, str]
"""Tenant and key; "" where no key has to do with it."""


@dataclass(frozen=True, slots=True)
class IdleLine:
    """A row of the ledger in which nothing was asked; a `tenants.usage.CountedMinute`."""

    minute: int
    tenant_id: str
    key_id: str
    model: str
    version_id: str
    device_us: int
    cost_micro: int
    sla_class: str = IDLE_CLASS
    requests: int = 0
    failed: int = 0
    cancelled: int = 0
    rows: int = 0
    tokens: int = 0
    cancelled_us: int = 0


# ---------------------------------------------------------------- pure


def spread(total: int, weights: Sequence[int]) -> list[int]:
    """Whole parts of a total in proportion to weights, which together are it: largest remainder, the first first.

    Hamilton's method. Nobody bears anything where all weights are zero.
    """
    whole = sum(weights)
    if not whole:
        return [0] * len(weights)
    parts = [total * weight // whole for weight in weights]
    by_remainder = sorted(range(len(weights)), key=lambda place: (-(total * weights[place] % whole), place))
    for place in by_remainder[: total - sum(parts)]:
        parts[place] += 1
    return parts


def idle_of(ready_us: int, ready_parts: int, used_us: int) -> tuple[int, int]:
    """Idle microseconds, and their cost in micro-units at the mean price of what was ready."""
    idle_us = max(0, ready_us - used_us)
    return idle_us, ready_parts * idle_us // (ready_us * PARTS_PER_MICRO) if ready_us else 0


# ---------------------------------------------------------------- the hours that are over


def settle(now: datetime) -> int:
    """Spread the hours whose usage has arrived; returns how many. One transaction each, each once."""
    due = ReadyHour.objects.filter(settled_at=None, hour__lte=now - HOUR - SETTLED_AFTER)
    with all_tenants(_WHY):
        return sum(
            _settle(pk, now) for pk in list(due.order_by("hour").values_list("pk", flat=True)[:_HOURS_A_STEP])
        )


@transaction.atomic
def _settle(pk: int, now: datetime) -> bool:
    hour = ReadyHour.objects.select_for_update(skip_locked=True).filter(pk=pk, settled_at=None).first()
    if hour is None:
        return False
    used = _used(hour)
    idle_us, cost_micro = idle_of(hour.ready_us, int(hour.ready_parts), sum(used.values()))
    lines = _lines(hour, _bearers(hour, used), idle_us, cost_micro)
    record_usage(_PROCESS, lines)
    hour.settled_at = now
    hour.idle_us, hour.charged_us = idle_us, sum(line.device_us for line in lines)
    hour.save(update_fields=["settled_at", "idle_us", "charged_us"])
    if lines:
        log.info(
            "usage.idle_spread",
            model=hour.model,
            hour=hour.hour.isoformat(),
            idle_us=idle_us,
            rows=len(lines),
        )
    return True


def _lines(hour: ReadyHour, bearers: dict[Bearer, int], idle_us: int, cost_micro: int) -> list[IdleLine]:
    order = sorted(bearers)
    weights = [bearers[bearer] for bearer in order]
    shares = zip(order, spread(idle_us, weights), spread(cost_micro, weights), strict=True)
    minute = int(hour.hour.timestamp())
    return [
        IdleLine(minute, tenant_id, key_id, hour.model, hour.version_id, device_us, cost)
        for (tenant_id, key_id), device_us, cost in shares
        if device_us or cost
    ]


def _used(hour: ReadyHour) -> dict[Bearer, int]:
    """Device time that requests took of the version in the hour, microseconds."""
    rows = UsageMinute.objects.filter(
        minute__gte=hour.hour, minute__lt=hour.hour + HOUR, version_id=hour.version_id
    )
    sums = (
        rows.exclude(sla_class=IDLE_CLASS)
        .order_by()
        .values_list("tenant_id", "key_id")
        .annotate(Sum("device_us"))
    )
    return {(tenant_id, key_id): int(used_us) for tenant_id, key_id, used_us in sums}


def _bearers(hour: ReadyHour, used: dict[Bearer, int]) -> dict[Bearer, int]:
    """Whoever bears an hour, with what of it each bears a part of the whole."""
    match hour.policy:
        case Idle.BY_USE:
            return used
        case Idle.BY_GRANT:
            return {(tenant_id, ""): 1 for tenant_id in _granted(hour.model).values_list("pk", flat=True)}
        case Idle.BY_GUARANTEE:
            return _guaranteed(hour.model)
        case _:
            return {}


def _granted(name: str) -> QuerySet[Tenant]:
    tenants = Tenant.objects.filter(is_active=True)
    if Model.objects.filter(name=name, is_public=True).exists():
        return tenants
    return tenants.filter(pk__in=ModelGrant.objects.filter(model__name=name).values("tenant_id"))


def _guaranteed(name: str) -> dict[Bearer, int]:
    """Guaranteed requests per second; requests in flight where nobody is guaranteed any of those."""
    quotas = Quota.objects.filter(
        model__name=name, key=None, guaranteed__isnull=False, tenant__is_active=True
    )
    for resource in ("requests", "concurrency"):
        found = _summed(quotas.filter(resource=resource).values_list("tenant_id", "guaranteed"))
        if found:
            return found
    return {}


def _summed(rows: Iterable[tuple[str, int | None]]) -> dict[Bearer, int]:
    sums: dict[Bearer, int] = {}
    for tenant_id, guaranteed in rows:
        sums[tenant_id, ""] = sums.get((tenant_id, ""), 0) + (guaranteed or 0)
    return sums
