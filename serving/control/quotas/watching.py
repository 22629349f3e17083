"""What the controller does about quotas: rebuilds lost accounts from the ledger, and says when a budget runs out."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from zoneinfo import ZoneInfo

import structlog
from django.db import transaction
from django.db.models import F, QuerySet, Sum

from serving.control.quotas.accounts import Accounts, AccountsAway, Raise, Standing
from serving.control.quotas.models import BUDGETS, Quota, ResourceChoice
from serving.quotas.windows import Span, span
from tenants.actors import Actor
from tenants.audit import Target, record
from tenants.models import ApiKey, UsageMinute
from tenants.scoping import all_tenants
from tenants.usage_columns import IDLE_CLASS
from tenants.usage_rows import UsageDay

log = structlog.get_logger(__name__)

SETTLING_S = 6.0
"""After a loss: until what gateways counted before it has reached the ledger."""
RAISE_EVERY_S = 60.0
_UNTIL_RAISED = timedelta(seconds=RAISE_EVERY_S)
_WHY = "budgets of every tenant are compared with the ledger"
_SYSTEM = Actor.system("controller")
_COUNTED = F("requests") - F("failed") - F("cancelled")
_SUMS = {
    "sum_requests": Sum(_COUNTED),
    "sum_tokens": Sum("tokens"),
    "sum_device_us": Sum("device_us"),
    "sum_cost_micro": Sum("cost_micro"),
}


class QuotaWatch:
    """One step; it remembers since when accounts are missing."""

    def __init__(self, accounts: Accounts | None = None, settling_s: float = SETTLING_S) -> None:
        self._accounts = accounts
        self._settling_s = settling_s
        self._lost_at: float | None = None
        self._raised_at = float("-inf")

    def step(self, now: datetime) -> None:
        accounts = self._accounts or Accounts()
        try:
            with all_tenants(_WHY):
                self._look(accounts, now)
        except AccountsAway as error:
            log.warning("quotas.accounts_away", error=str(error))

    def _look(self, accounts: Accounts, now: datetime) -> None:
        budgets = list(Quota.objects.filter(window__in=BUDGETS).select_related("tenant", "key", "model"))
        if not accounts.are_whole():
            self._rebuild(accounts, budgets, now)
        elif time.monotonic() - self._raised_at >= RAISE_EVERY_S:
            self._raised_at = time.monotonic()
            accounts.raise_to(known_of(budgets, now), now.timestamp())
        tell(budgets, accounts.standings(budgets), now)

    def _rebuild(self, accounts: Accounts, budgets: Sequence[Quota], now: datetime) -> None:
        """Waits until the ledger has what was used before the loss; without budgets there is nothing to wait for."""
        self._lost_at = time.monotonic() if self._lost_at is None else self._lost_at
        if budgets and time.monotonic() - self._lost_at < self._settling_s:
            return
        accounts.raise_to(known_of(budgets, now), now.timestamp(), declare_whole=True)
        self._lost_at = None
        log.info("quotas.accounts_rebuilt", budgets=len(budgets))


def known_of(budgets: Iterable[Quota], now: datetime) -> list[Raise]:
    """What the ledger has for each budget in its window of now. One query per window and time zone.

    Days and months are sums of the ledger's days, which are the tenants' own; hours are sums of minutes.
    """
    alike: dict[tuple[str, str], list[Quota]] = defaultdict(list)
    for quota in budgets:
        if quota.window != "hour" and quota.tenant.usage_zone != quota.tenant.time_zone:
            continue  # its days are being cut anew
        alike[quota.window, quota.tenant.time_zone].append(quota)
    return [known for quotas in alike.values() for known in _known_in(span_of(quotas[0], now), quotas)]


def span_of(quota: Quota, now: datetime) -> Span:
    return span(now.timestamp(), quota.entry().window, ZoneInfo(quota.tenant.time_zone))


def standing_now(
    quota: Quota, known: Mapping[str, Standing] | None, now: datetime
) -> tuple[int | None, int | None, datetime | None]:
    """Used and reserved, in base units (None where nothing is known), and when the window ends.

    `known` is None while the accounts cannot be read. A quota without an account is one of which nothing was
    taken, unless it is so new that the ledger's share is not in it yet; the share of a queue never has one.
    """
    found = span_of(quota, now) if quota.window in BUDGETS else None
    resets_at = None if found is None else datetime.fromtimestamp(found.end_s, UTC)
    if known is None or quota.resource == ResourceChoice.QUEUE:
        return None, None, resets_at
    standing = known.get(quota.pk)
    if standing is None and now - quota.created_at < _UNTIL_RAISED:
        return None, None, resets_at
    reserved = 0 if standing is None else standing.reserved
    if found is None:
        return None, reserved, None
    used = standing.used if standing is not None and standing.window >= found.start_s else 0
    return used, reserved, resets_at


def _known_in(found: Span, quotas: Sequence[Quota]) -> list[Raise]:
    tenant_ids = {quota.tenant_id for quota in quotas}
    start = datetime.fromtimestamp(found.start_s, UTC)
    rows: QuerySet[UsageDay] | QuerySet[UsageMinute]
    if quotas[0].window == "hour":
        rows = UsageMinute.objects.filter(minute__gte=start, tenant_id__in=tenant_ids)
    else:
        first_day = start.astimezone(ZoneInfo(quotas[0].tenant.time_zone)).date()
        rows = UsageDay.objects.filter(day__gte=first_day, tenant_id__in=tenant_ids)
    sums: dict[str, list[dict[str, Any]]] = defaultdict(list)
    rolled = dict(
        ApiKey.objects.filter(tenant_id__in=tenant_ids).exclude(first_id="").values_list("pk", "first_id")
    )
    asked = rows.exclude(
        sla_class=IDLE_CLASS
    ).order_by()  # budgets bind what is asked; nobody asked for idle time
    for row in asked.values("tenant_id", "key_id", "model").annotate(**_SUMS):
        row["key_id"] = rolled.get(row["key_id"], row["key_id"])
        sums[row["tenant_id"]].append(cast("dict[str, Any]", row))
    return [
        Raise(quota.tenant_id, quota.pk, found.start_s, found.end_s, _used(quota, sums[quota.tenant_id]))
        for quota in quotas
    ]


def _used(quota: Quota, sums: Iterable[dict[str, Any]]) -> int:
    key_id = None if quota.key is None else quota.key.limited_as
    counted = (
        row
        for row in sums
        if key_id in (None, row["key_id"]) and (quota.model is None or quota.model.name == row["model"])
    )
    return sum(row[f"sum_{quota.resource}"] for row in counted)


def tell(budgets: Iterable[Quota], standings: dict[str, Standing], now: datetime) -> None:
    """Record that a budget reached its threshold, or its end: each once per window."""
    for quota in budgets:
        standing = standings.get(quota.pk)
        start_s = span_of(quota, now).start_s
        if standing is None or standing.window < start_s:
            continue
        if quota.soft_percent is not None and standing.used * 100 >= quota.soft_percent * quota.limit:
            _tell(quota, "soft_told_for", "quota.threshold_reached", standing, start_s)
        if standing.used >= quota.limit:
            _tell(quota, "hard_told_for", "quota.exhausted", standing, start_s)


@transaction.atomic
def _tell(quota: Quota, field: str, action: str, standing: Standing, start_s: int) -> None:
    """The conditional update is the claim: of two controllers at once only one tells."""
    if getattr(quota, field) >= start_s:
        return
    unsaid = Quota.objects.filter(pk=quota.pk, **{f"{field}__lt": start_s})
    if not unsaid.update(**{field: start_s}):
        return
    after = {"used": standing.used, "limit": quota.limit, "resource": quota.resource, "window": quota.window}
    target = Target("quota", quota.pk, str(quota)[:200])
    record(by=_SYSTEM, action=action, target=target, after=after, tenant=quota.tenant)
