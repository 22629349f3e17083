"""The quota pages: units people type, who sees which buttons, and what stands in the bars."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.urls import reverse

from serving.control.quotas.accounts import Standing
from serving.control.quotas.actions import create_quota
from serving.control.quotas.models import Quota
from serving.control.quotas.watching import standing_now
from tenants.actions.keys import roll_key
from tenants.models import Tenant
from tenants.scoping import all_tenants
from tests.console.conftest import World
from tests.tenants.conftest import SYSTEM

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)


def only_quota() -> Quota:
    with all_tenants("a test"):
        return Quota.objects.select_related("tenant", "key", "model").get()


def a_quota(world: World, **fields: Any) -> Quota:
    given = {"resource": "requests", "window": "day", "limit": 200} | fields
    return create_quota(by=SYSTEM, tenant=world.cast.tenant, **given)


@pytest.mark.parametrize(
    ("typed", "limit"),
    [
        ({"resource": "device_us", "window": "hour", "limit": "1500.5"}, 1_500_500),
        ({"resource": "cost_micro", "window": "month", "limit": "12.34"}, 12_340_000),
        ({"resource": "tokens", "window": "minute", "limit": "9000", "burst": "100"}, 9000),
        ({"resource": "concurrency", "window": "", "limit": "7"}, 7),
        ({"resource": "queue", "window": "day", "limit": "7", "burst": "3", "observe_only": "on"}, 7),
    ],
)
def test_a_limit_is_typed_in_the_unit_people_read(world: World, typed: dict[str, str], limit: int) -> None:
    address = reverse("quota_create", args=[world.cast.tenant.slug])
    answer = world.client("operator").post(address, typed)
    assert (answer.status_code, answer.headers.get("location")) == (302, reverse("quotas")), answer.content
    assert only_quota().limit == limit


def test_a_change_starts_from_what_is_and_keeps_its_unit(world: World) -> None:
    quota = a_quota(world, resource="cost_micro", window="month", limit=12_340_000)
    address, client = reverse("quota_edit", args=[quota.pk]), world.client("operator")
    shown = client.get(address).content.decode()
    assert 'value="12.34"' in shown
    seen = shown.split('name="seen" value="')[1].split('"')[0]
    assert client.post(address, {"limit": "20", "seen": seen}).status_code == 302
    assert only_quota().limit == 20_000_000


def test_what_is_not_asked_of_a_resource_is_not_shown(world: World) -> None:
    quota, client = a_quota(world, resource="queue", window="", limit=7), world.client("operator")
    shown = client.get(reverse("quota_edit", args=[quota.pk])).content.decode()
    assert 'name="limit"' in shown and 'name="soft_percent"' not in shown and 'name="burst"' not in shown
    form = client.get(reverse("quota_create", args=[world.cast.tenant.slug])).content.decode()
    assert 'data-only-for="resource=requests tokens"' in form
    assert "progress" not in client.get(reverse("quotas")).content.decode(), "it has no account"


def test_what_cannot_be_is_told_at_its_field(world: World) -> None:
    address = reverse("quota_create", args=[world.cast.tenant.slug])
    typed = {"resource": "device_us", "window": "second", "limit": "10"}
    answer = world.client("operator").post(address, typed)
    assert answer.status_code == 422 and b"per hour, day or month" in answer.content


def test_a_tenants_admin_limits_one_of_its_keys_and_nothing_wider(world: World) -> None:
    address, client = reverse("quota_create", args=[world.cast.tenant.slug]), world.client("owner")
    typed = {"resource": "requests", "window": "day", "limit": "50"}
    assert client.post(address, typed).status_code == 422
    assert client.post(address, typed | {"key": world.key.pk}).status_code == 302
    quota = only_quota()
    assert (quota.key_id, quota.is_of_platform) == (world.key.pk, False)


def test_a_keys_limits_stand_beside_it_and_beside_the_one_it_was_rolled_into(world: World) -> None:
    a_quota(world, resource="tokens", window="minute", limit=9000, key=world.key)
    address, client = reverse("tenant", args=[world.cast.tenant.slug]), world.client("owner")
    assert client.get(address).content.decode().count("Tokens per minute: 9,000") == 1
    roll_key(by=SYSTEM, key=world.key, overlap=timedelta(days=1))
    assert client.get(address).content.decode().count("Tokens per minute: 9,000") == 2


def test_buttons_are_there_for_whom_they_work(world: World) -> None:
    quota = a_quota(world)
    address = reverse("quota_edit", args=[quota.pk])
    shown = {who: world.client(who).get(reverse("quotas")).content.decode() for who in ("operator", "owner")}
    assert address in shown["operator"] and address not in shown["owner"]
    assert world.cast.tenant.name in shown["owner"]


def test_a_stranger_sees_no_quota_of_another_tenant(world: World) -> None:
    a_quota(world)
    with all_tenants("a test"):
        name = world.cast.tenant.name
    assert f">{name}<" not in world.client("stranger").get(reverse("quotas")).content.decode()


def test_lifting_asks_for_the_name(world: World) -> None:
    quota = a_quota(world)
    address, client = reverse("quota_delete", args=[quota.pk]), world.client("operator")
    assert client.post(address, {"name": "something else"}).status_code == 422
    assert client.post(address, {"name": quota.name}).status_code == 302
    with all_tenants("a test"):
        assert not Quota.objects.exists()


@pytest.mark.parametrize(
    ("fields", "age", "known", "said"),
    [
        ({}, timedelta(hours=1), {}, (0, 0)),
        ({}, timedelta(seconds=5), {}, (None, None)),
        ({}, timedelta(hours=1), None, (None, None)),
        ({"resource": "concurrency", "window": ""}, timedelta(hours=1), {}, (None, 0)),
        ({"resource": "queue", "window": ""}, timedelta(hours=1), {}, (None, None)),
    ],
    ids=["untouched", "too new to tell", "Valkey is away", "in flight", "queue"],
)
def test_nothing_known_is_not_nothing_taken(
    fields: dict[str, str],
    age: timedelta,
    known: dict[str, Standing] | None,
    said: tuple[int | None, int | None],
) -> None:
    given = {"resource": "requests", "window": "day", "limit": 200} | fields
    quota = Quota(**given, tenant=Tenant(slug="acme"), created_at=NOW - age)
    assert standing_now(quota, known, NOW)[:2] == said
