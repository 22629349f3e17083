"""Whoever opens the console reads which keys end soon, while they can still be rolled."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils import timezone

from tenants.actions.keys import create_key, roll_key
from tenants.models import ApiKey
from tests.console.api.asking import ask
from tests.console.conftest import World
from tests.tenants.conftest import SYSTEM


@pytest.fixture
def ending(world: World) -> ApiKey:
    soon = timezone.now() + timedelta(days=3)
    return create_key(by=SYSTEM, tenant=world.cast.tenant, name="nightly", expires_at=soon)[0]


@pytest.mark.parametrize(("who", "reads"), [("operator", True), ("viewer", True), ("stranger", False)])
def test_the_overview_names_them_to_those_who_see_the_tenant(
    world: World, ending: ApiKey, who: str, reads: bool
) -> None:
    answer = world.client(who).get(reverse("overview"))
    assert list(answer.context["ending"]) == ([ending] if reads else [])
    assert ("nightly" in answer.content.decode()) == reads


def test_the_tenants_page_lists_them_alone_when_asked(world: World, ending: ApiKey) -> None:
    owner, address = world.client("owner"), reverse("tenant", args=["acme"])
    assert {key.name for key in owner.get(address).context["keys"]} == {"nightly", "support chat"}
    assert owner.get(f"{address}?keys=ending").context["keys"] == [ending]
    roll_key(by=SYSTEM, key=ending, overlap=timedelta(hours=1))
    assert owner.get(f"{address}?keys=ending").context["keys"] == []
    assert not owner.get(reverse("overview")).context["ending"]


def test_the_api_lists_them_alone_when_asked(world: World, ending: ApiKey) -> None:
    found = ask(world.client("owner"), "GET", "/keys?ending=true").json()["data"]
    assert [key["id"] for key in found] == [ending.pk]
