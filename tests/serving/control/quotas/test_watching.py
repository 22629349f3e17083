"""Accounts are rebuilt from the ledger when they are lost, and budgets that run out are told of once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from redis import Redis

from serving.contract import UsageRow
from serving.control.catalog.models import Model
from serving.control.quotas.accounts import Accounts, Raise
from serving.control.quotas.actions import create_quota
from serving.control.quotas.models import Quota
from serving.control.quotas.watching import QuotaWatch, span_of
from serving.quotas.valkey import WHOLE
from tenants.actions.keys import create_key, roll_key
from tenants.actions.tenants import create_tenant
from tenants.models import AuditEvent, Tenant
from tenants.scoping import all_tenants
from tenants.usage import record_usage
from tests.tenants.conftest import SYSTEM, Cast, team

__all__ = ["team"]

NOW = datetime(2026, 5, 20, 10, 30, tzinfo=UTC)


@pytest.fixture
def tenant(team: Cast) -> Iterator[Tenant]:
    with all_tenants("a test"):
        yield team.tenant


@pytest.fixture
def accounts(valkey_url: str) -> Iterator[Accounts]:
    """Lost, as after FLUSHALL."""
    client = Redis.from_url(valkey_url)
    client.delete(WHOLE)
    yield Accounts(valkey_url)
    client.set(WHOLE, "1")


def a_quota(tenant: Tenant, resource: str = "requests", window: str = "day", **fields: Any) -> Quota:
    limit = fields.pop("limit", 100)
    return create_quota(by=SYSTEM, tenant=tenant, resource=resource, window=window, limit=limit, **fields)


def used(tenant: Tenant, at: datetime = NOW, **counts: Any) -> None:
    """Write usage into the ledger."""
    minute = int(at.timestamp()) // 60 * 60
    given = {"key_id": "key_x", "model": "minilm", "version_id": "mv_1", "sla_class": "standard"} | counts
    record_usage("gateway:test", [UsageRow(minute=minute, tenant_id=tenant.pk, **given)])


def standing(accounts: Accounts, quota: Quota) -> int | None:
    found = accounts.standings([quota]).get(quota.pk)
    return None if found is None else found.used


def test_lost_accounts_hold_what_the_ledger_knows(tenant: Tenant, accounts: Accounts) -> None:
    requests, money = a_quota(tenant), a_quota(tenant, "cost_micro", "month", limit=10**9)
    hour = a_quota(tenant, "tokens", "hour")
    used(tenant, requests=7, failed=2, cancelled=1, tokens=40, cost_micro=500)
    used(tenant, NOW - timedelta(hours=2), requests=3, tokens=9, cost_micro=70)
    used(tenant, NOW - timedelta(days=2), requests=100, tokens=9, cost_micro=1000)
    QuotaWatch(accounts, settling_s=0).step(NOW)
    assert accounts.are_whole()
    assert [standing(accounts, quota) for quota in (requests, money, hour)] == [7, 1570, 40]


def test_only_what_a_quota_is_about_counts(tenant: Tenant, accounts: Accounts) -> None:
    model = Model.objects.create(name="minilm")
    quota = a_quota(tenant, model=model)
    used(tenant, requests=5)
    used(tenant, requests=9, model="other")
    QuotaWatch(accounts, settling_s=0).step(NOW)
    assert standing(accounts, quota) == 5


def test_nobody_asked_for_idle_time(tenant: Tenant, accounts: Accounts) -> None:
    quota = a_quota(tenant, "cost_micro", limit=10**9)
    used(tenant, requests=1, cost_micro=5)
    used(tenant, cost_micro=90, sla_class="idle")
    QuotaWatch(accounts, settling_s=0).step(NOW)
    assert standing(accounts, quota) == 5


def test_a_day_is_that_of_the_tenant(tenant: Tenant, accounts: Accounts) -> None:
    Tenant.objects.filter(pk=tenant.pk).update(time_zone="Asia/Shanghai", usage_zone="Asia/Shanghai")
    tenant.refresh_from_db()
    quota = a_quota(tenant)
    used(tenant, datetime(2026, 5, 19, 15, 59, tzinfo=UTC), requests=5)  # 23:59 the day before
    used(tenant, datetime(2026, 5, 19, 16, 0, tzinfo=UTC), requests=3)
    QuotaWatch(accounts, settling_s=0).step(NOW)
    assert standing(accounts, quota) == 3


def test_they_are_not_declared_whole_before_the_ledger_has_settled(
    tenant: Tenant, accounts: Accounts
) -> None:
    a_quota(tenant)
    QuotaWatch(accounts, settling_s=3600).step(NOW)
    assert not accounts.are_whole()


def test_without_budgets_there_is_nothing_to_wait_for(tenant: Tenant, accounts: Accounts) -> None:
    a_quota(tenant, "concurrency", "")
    QuotaWatch(accounts, settling_s=3600).step(NOW)
    assert accounts.are_whole()


def test_an_account_that_knows_more_than_the_ledger_is_not_lowered(
    tenant: Tenant, accounts: Accounts
) -> None:
    quota = a_quota(tenant)
    window = span_of(quota, NOW)
    accounts.raise_to([Raise(tenant.pk, quota.pk, *window, 50)], NOW.timestamp(), declare_whole=True)
    used(tenant, requests=7)
    QuotaWatch(accounts).step(NOW)
    assert standing(accounts, quota) == 50


def test_an_account_of_an_older_window_starts_anew(tenant: Tenant, accounts: Accounts) -> None:
    quota = a_quota(tenant)
    before = span_of(quota, NOW - timedelta(days=1))
    accounts.raise_to([Raise(tenant.pk, quota.pk, *before, 90)], NOW.timestamp(), declare_whole=True)
    used(tenant, requests=7)
    QuotaWatch(accounts).step(NOW)
    assert standing(accounts, quota) == 7


def events(quota: Quota) -> list[str]:
    found = AuditEvent.objects.filter(target_id=quota.pk, actor_type="system", action__startswith="quota.")
    names = found.exclude(action="quota.created").order_by("seq")
    return list(names.values_list("action", flat=True))


def test_a_threshold_is_told_of_once_per_window(tenant: Tenant, accounts: Accounts) -> None:
    quota = a_quota(tenant, soft_percent=80)
    watch = QuotaWatch(accounts, settling_s=0)
    used(tenant, requests=79)
    watch.step(NOW)
    assert events(quota) == []
    accounts.raise_to([Raise(tenant.pk, quota.pk, *span_of(quota, NOW), 80)], NOW.timestamp())
    watch.step(NOW)
    watch.step(NOW)
    QuotaWatch(accounts).step(NOW)
    assert events(quota) == ["quota.threshold_reached"]


def test_a_budget_that_is_used_up_is_told_of_in_every_window(tenant: Tenant, accounts: Accounts) -> None:
    quota = a_quota(tenant)
    for day in range(2):
        now = NOW + timedelta(days=day)
        accounts.raise_to(
            [Raise(tenant.pk, quota.pk, *span_of(quota, now), 100)], now.timestamp(), declare_whole=True
        )
        QuotaWatch(accounts).step(now)
    assert events(quota) == ["quota.exhausted", "quota.exhausted"]


def test_the_step_survives_valkey_being_away(tenant: Tenant) -> None:
    a_quota(tenant)
    QuotaWatch(Accounts("redis://127.0.0.1:1/0")).step(NOW)


def test_a_rolled_keys_limit_is_rebuilt_from_what_all_of_them_used(
    tenant: Tenant, accounts: Accounts
) -> None:
    key, _ = create_key(by=SYSTEM, tenant=tenant, name="nightly")
    fresh, _ = roll_key(by=SYSTEM, key=key, overlap=timedelta(days=1))
    quota = a_quota(tenant, key=key)
    used(tenant, key_id=key.pk, requests=3)
    used(tenant, key_id=fresh.pk, requests=4)
    used(tenant, requests=50)
    QuotaWatch(accounts, settling_s=0.0).step(NOW)
    assert standing(accounts, quota) == 7


def test_more_tenants_with_budgets_cost_no_more_queries(
    tenant: Tenant, accounts: Accounts, django_assert_max_num_queries: Any
) -> None:
    """A step looks at all tenants of a time zone together."""
    for number in range(8):
        other = create_tenant(by=SYSTEM, slug=f"team-{number}", name=f"Team {number}")
        for window in ("hour", "day", "month"):
            a_quota(other, window=window)
    watch = QuotaWatch(accounts, settling_s=0)
    with django_assert_max_num_queries(1 + 2 * 3):  # the budgets; of each window the sums and the rolled keys
        watch.step(NOW)
