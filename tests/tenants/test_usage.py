"""The usage ledger adds what is reported, names included, and loses nothing to concurrency."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from serving.contract import UsageRow
from tenants.actions.keys import create_key
from tenants.models import ApiKey, UsageMinute
from tenants.scoping import all_tenants, tenant_scope
from tenants.usage import record_usage
from tests.tenants.conftest import SYSTEM, Cast, build_cast

MINUTE = 1_764_000_000


def row(team: Cast, **values: Any) -> UsageRow:
    defaults = {
        "minute": MINUTE,
        "tenant_id": team.tenant.pk,
        "key_id": "key_aaaaaaaaaaaa",
        "model": "minilm",
        "version_id": "mv_1",
        "sla_class": "interactive",
        "requests": 10,
        "failed": 1,
        "cancelled": 2,
        "rows": 20,
        "tokens": 300,
        "device_us": 4000,
        "cost_micro": 5,
    }
    return UsageRow(**(defaults | values))


def test_counts_of_one_minute_add_up_over_reports_and_processes(team: Cast) -> None:
    record_usage("gateway-1", [row(team), row(team, requests=5, failed=0)])
    record_usage("gateway-2", [row(team)])
    with tenant_scope(team.tenant.pk):
        total = UsageMinute.objects.get()
    assert (total.requests, total.failed, total.cancelled) == (25, 2, 6)
    assert (total.rows, total.tokens, total.device_us, total.cost_micro) == (60, 900, 12_000, 15)
    assert total.minute == datetime.fromtimestamp(MINUTE, UTC)


@pytest.mark.parametrize(
    "other",
    [
        {"minute": MINUTE + 60},
        {"model": "b"},
        {"version_id": "mv_2"},
        {"sla_class": "batch"},
        {"key_id": "key_b"},
    ],
)
def test_every_dimension_has_its_own_row(team: Cast, other: dict[str, Any]) -> None:
    record_usage("gateway", [row(team), row(team, **other)])
    with tenant_scope(team.tenant.pk):
        assert UsageMinute.objects.count() == 2


def test_names_are_copied_and_survive_the_rename(team: Cast) -> None:
    key, _ = create_key(by=SYSTEM, tenant=team.tenant, name="ci")
    record_usage("gateway", [row(team, key_id=key.pk)])
    with tenant_scope(team.tenant.pk):
        ApiKey.objects.update(name="renamed")
        kept = UsageMinute.objects.get()
    assert (kept.tenant_name, kept.key_name) == ("Acme", "ci")


def test_usage_of_an_unknown_tenant_is_kept_without_a_name(team: Cast) -> None:
    record_usage("gateway", [row(team, tenant_id="tnt_gone", key_id="key_gone")])
    with tenant_scope("tnt_gone"):
        assert UsageMinute.objects.get().tenant_name == ""


def test_a_key_remembers_when_it_was_last_used(team: Cast) -> None:
    key, _ = create_key(by=SYSTEM, tenant=team.tenant, name="ci")
    for minute in (MINUTE + 60, MINUTE):
        record_usage("gateway", [row(team, key_id=key.pk, minute=minute)])
    with tenant_scope(team.tenant.pk):
        assert ApiKey.objects.get().last_used_at == datetime.fromtimestamp(MINUTE + 60, UTC)


@pytest.mark.parametrize("wrong", [{"device_us": -1}, {"requests": 1, "failed": 2}])
def test_a_report_with_impossible_counts_is_left_out_as_a_whole(team: Cast, wrong: dict[str, int]) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        record_usage("gateway", [row(team, model="a"), row(team, model="b", **wrong)])
    with all_tenants("a test"):
        assert not UsageMinute.objects.exists()


def test_an_empty_report_is_fine(db: None) -> None:
    record_usage("gateway", [])


@pytest.mark.django_db(transaction=True)
def test_reports_that_meet_in_the_same_rows_lose_nothing() -> None:
    team = build_cast()
    keys = [create_key(by=SYSTEM, tenant=team.tenant, name=f"k{n}")[0].pk for n in range(8)]
    start = threading.Barrier(4)

    def report(process: str, order: int) -> None:
        start.wait(timeout=10)
        for _ in range(5):
            record_usage(process, [row(team, key_id=key) for key in keys[::order]])
        connection.close()

    threads = [threading.Thread(target=report, args=(f"g{n}", 1 if n % 2 else -1)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    with tenant_scope(team.tenant.pk):
        assert list(UsageMinute.objects.values_list("requests", flat=True)) == [200] * 8


def test_an_absurd_count_leaves_the_report_out_and_the_ledger_open(team: Cast) -> None:
    """A sum at the end of its column's range would refuse every honest report after it."""
    with pytest.raises(ValueError, match="device_us"):
        record_usage("gateway-1", [row(team), row(team, model="b", device_us=(1 << 63) - 1)])
    record_usage("gateway-1", [row(team)])
    with tenant_scope(team.tenant.pk):
        assert UsageMinute.objects.get().requests == 10


def test_a_key_was_last_used_in_no_future_and_by_its_own_tenant_only(team: Cast) -> None:
    key, _ = create_key(by=SYSTEM, tenant=team.tenant, name="bot")
    record_usage("gateway-1", [row(team, key_id=key.pk, tenant_id=team.other.pk)])
    with tenant_scope(team.tenant.pk):
        key.refresh_from_db()
    assert key.last_used_at is None
    record_usage("gateway-1", [row(team, key_id=key.pk, minute=4_000_000_000)])
    with tenant_scope(team.tenant.pk):
        key.refresh_from_db()
    assert key.last_used_at is not None and key.last_used_at <= timezone.now()
