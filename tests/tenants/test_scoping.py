"""A tenant-owned row exists only inside a scope: in threads, in tasks, through relations."""

from __future__ import annotations

import asyncio

import pytest
from asgiref.sync import sync_to_async
from django.db import connections

from tenants.actions.keys import create_key
from tenants.models import ApiKey, AuditEvent, Membership, UsageDay, UsageHour, UsageMinute, UsageWeek
from tenants.scoping import ScopeError, all_tenants, current_scope, tenant_scope
from tests.tenants.conftest import SYSTEM, Cast, build_cast


@pytest.mark.parametrize(
    "model", [ApiKey, Membership, AuditEvent, UsageMinute, UsageHour, UsageDay, UsageWeek]
)
def test_a_query_outside_a_scope_raises(model: type) -> None:
    with pytest.raises(ScopeError):
        model.objects.all()
    with pytest.raises(ScopeError):
        model.objects.filter(pk="x").exists()


def test_a_reverse_relation_outside_a_scope_raises(team: Cast) -> None:
    with pytest.raises(ScopeError):
        team.tenant.memberships.count()


def test_a_scope_shows_one_tenants_rows_only(team: Cast) -> None:
    create_key(by=SYSTEM, tenant=team.tenant, name="ours")
    create_key(by=SYSTEM, tenant=team.other, name="theirs")
    with tenant_scope(team.tenant.pk):
        assert [key.name for key in ApiKey.objects.all()] == ["ours"]
        assert not ApiKey.objects.filter(tenant=team.other).exists()
    with tenant_scope([team.tenant.pk, team.other.pk]):
        assert ApiKey.objects.count() == 2
    with tenant_scope([]):
        assert ApiKey.objects.count() == 0
    with all_tenants("a test"):
        assert ApiKey.objects.count() == 2


def test_a_bulk_update_reaches_no_other_tenant(team: Cast) -> None:
    create_key(by=SYSTEM, tenant=team.other, name="theirs")
    with tenant_scope(team.tenant.pk):
        assert ApiKey.objects.update(name="mine now") == 0


def test_a_queryset_keeps_its_scope_when_it_is_evaluated_elsewhere(team: Cast) -> None:
    create_key(by=SYSTEM, tenant=team.other, name="theirs")
    with tenant_scope(team.tenant.pk):
        lazy = ApiKey.objects.all()
    with all_tenants("a test"):
        assert list(lazy) == []
    assert list(lazy.all()) == []


def test_the_scope_ends_with_its_block_even_after_an_error() -> None:
    with pytest.raises(KeyError), tenant_scope("tnt_a"):
        raise KeyError
    with pytest.raises(ScopeError):
        current_scope()


def test_an_inner_scope_gives_way_to_the_outer_one() -> None:
    with tenant_scope("tnt_a"):
        with tenant_scope("tnt_b"):
            assert current_scope().tenant_ids == {"tnt_b"}
        assert current_scope().tenant_ids == {"tnt_a"}


def test_all_tenants_wants_a_reason() -> None:
    with pytest.raises(ValueError, match="reason"), all_tenants(""):
        pass


async def test_tasks_side_by_side_keep_their_own_scopes() -> None:
    met = asyncio.Barrier(2)

    async def seen(tenant_id: str) -> set[str]:
        with tenant_scope(tenant_id):
            await met.wait()
            inside = await sync_to_async(lambda: current_scope().tenant_ids)()
            await met.wait()
            return set(inside or ())

    assert await asyncio.gather(seen("tnt_a"), seen("tnt_b")) == [{"tnt_a"}, {"tnt_b"}]
    with pytest.raises(ScopeError):
        current_scope()


@pytest.mark.django_db(transaction=True)
async def test_async_queries_follow_the_same_rule() -> None:
    team = await sync_to_async(build_cast)()
    with pytest.raises(ScopeError):
        await Membership.objects.acount()
    with tenant_scope(team.other.pk):
        assert await Membership.objects.acount() == 1
    await sync_to_async(connections.close_all)()  # the worker thread's own, or the database cannot be dropped
