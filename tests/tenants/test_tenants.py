"""Tenants: what is accepted, what is refused with which words, and what is announced."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import IntegrityError, transaction

from tenants.actions.tenants import create_tenant, resume_tenant, suspend_tenant, update_tenant
from tenants.errors import Conflict, Invalid, NotAllowed
from tenants.models import Tenant
from tests.tenants.conftest import SYSTEM, Cast, last_event


def test_a_tenant_starts_active_with_an_opaque_id(db: None, announced: list[tuple[str, str]]) -> None:
    tenant = create_tenant(by=SYSTEM, slug="acme-chat", name="Acme chat", requests_per_s=20, burst=40)
    assert tenant.pk.startswith("tnt_") and len(tenant.pk) == 20
    assert tenant.is_active
    assert announced == [("tenant", tenant.pk)]


@pytest.mark.parametrize(
    "slug", ["", "a", "Acme", "acme_chat", "-acme", "acme-", "9acme", "a" * 41, "ac me", "acmé"]
)
def test_a_slug_is_plain_and_url_safe(db: None, slug: str) -> None:
    with pytest.raises(Invalid) as caught:
        create_tenant(by=SYSTEM, slug=slug, name="x")
    assert set(caught.value.errors) == {"slug"}


@pytest.mark.parametrize("slug", ["admin", "api", "all", "v2"])
def test_reserved_words_are_no_slugs(db: None, slug: str) -> None:
    with pytest.raises(Invalid, match="reserved"):
        create_tenant(by=SYSTEM, slug=slug, name="x")


def test_a_slug_is_taken_once(team: Cast) -> None:
    with pytest.raises(Invalid) as caught:
        create_tenant(by=SYSTEM, slug="acme", name="Another")
    assert caught.value.errors == {"slug": "Another tenant has this slug."}


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"max_concurrency": 0}, "max_concurrency"),
        ({"max_concurrency": -1}, "max_concurrency"),
        ({"requests_per_s": 0.0}, "requests_per_s"),
        ({"requests_per_s": -3.0}, "requests_per_s"),
        ({"requests_per_s": 5.0, "burst": 0}, "burst"),
        ({"burst": 5}, "burst"),
        ({"name": ""}, "name"),
        ({"name": "x" * 101}, "name"),
        ({"max_concurrency": "many"}, "max_concurrency"),
        ({"slug": "elsewhere"}, "slug"),
        ({"is_active": False}, "is_active"),
    ],
)
def test_a_wrong_value_is_refused_at_its_field(team: Cast, values: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as caught:
        update_tenant(by=SYSTEM, tenant=team.tenant, **values)
    assert set(caught.value.errors) == {field}
    assert caught.value.errors[field]


@pytest.mark.parametrize(
    "values",
    [
        {"slug": "Not OK"},
        {"max_concurrency": 0},
        {"requests_per_s": -1.0},
        {"burst": 5, "requests_per_s": None},
        {"suspended_reason": "none", "is_active": True},
    ],
)
def test_the_database_keeps_the_promises_behind_the_actions(team: Cast, values: dict[str, Any]) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        Tenant.objects.filter(pk=team.tenant.pk).update(**values)


def test_suspending_and_resuming_are_announced_with_the_reason_kept(
    team: Cast, announced: list[tuple[str, str]]
) -> None:
    suspended = suspend_tenant(by=SYSTEM, tenant=team.tenant, reason="unpaid")
    assert (suspended.is_active, suspended.suspended_reason) == (False, "unpaid")
    assert (last_event().action, last_event().reason) == ("tenant.suspended", "unpaid")
    with pytest.raises(Conflict):
        suspend_tenant(by=SYSTEM, tenant=team.tenant)
    resumed = resume_tenant(by=SYSTEM, tenant=team.tenant)
    assert (resumed.is_active, resumed.suspended_reason) == (True, "")
    assert announced == [("tenant", team.tenant.pk)] * 2


def test_an_update_works_on_the_row_as_it_is_now(team: Cast) -> None:
    stale = Tenant.objects.get(pk=team.tenant.pk)
    update_tenant(by=SYSTEM, tenant=team.tenant, name="New name")
    update_tenant(by=SYSTEM, tenant=stale, max_concurrency=7)
    fresh = Tenant.objects.get(pk=team.tenant.pk)
    assert (fresh.name, fresh.max_concurrency) == ("New name", 7)


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Asia/Kolkata", "UTC", "America/St_Johns"])
def test_a_tenant_lives_in_the_zone_an_operator_gives_it(
    team: Cast, announced: list[tuple[str, str]], zone: str
) -> None:
    tenant = update_tenant(by=team.actor("operator"), tenant=team.tenant, time_zone=zone)
    assert tenant.time_zone == zone
    assert zone == "UTC" or announced == [("tenant", tenant.pk)]


@pytest.mark.parametrize("zone", ["", "Berlin", "europe/berlin", "../etc/passwd", "Factory", "localtime"])
def test_what_is_no_iana_name_is_no_zone(team: Cast, zone: str) -> None:
    with pytest.raises(Invalid) as caught:
        update_tenant(by=SYSTEM, tenant=team.tenant, time_zone=zone)
    assert set(caught.value.errors) == {"time_zone"}


def test_an_owner_does_not_move_the_days_that_budgets_begin_with(team: Cast) -> None:
    with pytest.raises(NotAllowed):
        update_tenant(by=team.actor("owner"), tenant=team.tenant, time_zone="Asia/Tokyo")
