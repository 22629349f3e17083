"""Making a key is one form: with its limits, or not at all."""

from __future__ import annotations

from typing import Any

from django.urls import reverse

from serving.control.quotas.actions import create_quota
from serving.control.quotas.models import Quota
from tenants.models import ApiKey
from tenants.scoping import tenant_scope
from tests.console.conftest import World
from tests.tenants.conftest import SYSTEM


def make(world: World, **typed: str) -> Any:
    given = {"name": "limited", "scopes": ["infer"], "expires": "30"} | typed
    return world.client("developer").post(reverse("key_create", args=["acme"]), given)


def limits(world: World) -> dict[str, tuple[int, str]]:
    with tenant_scope(world.cast.tenant.pk):
        rows = Quota.objects.filter(key__name="limited")
        return {row.resource: (row.limit, row.window) for row in rows}


def test_a_key_is_made_with_its_limits(world: World) -> None:
    answer = make(world, requests="600", tokens="90000")
    assert answer.status_code == 200 and "tg_" in answer.content.decode()
    assert limits(world) == {"requests": (600, "minute"), "tokens": (90000, "minute")}


def test_without_any_it_has_none_of_its_own(world: World) -> None:
    assert make(world).status_code == 200
    assert limits(world) == {}


def test_where_a_limit_is_refused_no_key_is_made_and_the_form_says_why_at_its_field(world: World) -> None:
    create_quota(by=SYSTEM, tenant=world.cast.tenant, resource="tokens", window="minute", limit=1000)
    answer = make(world, requests="600", tokens="90000")
    assert answer.status_code == 422
    assert answer.context["form"].errors["tokens"] == ["This is more than the tenant itself has."]
    with tenant_scope(world.cast.tenant.pk):
        assert not ApiKey.objects.filter(name="limited").exists()
    assert limits(world) == {}


def test_no_limit_is_below_one(world: World) -> None:
    assert list(make(world, requests="0").context["form"].errors) == ["requests"]
