"""Whoever opens the console reads which keys end soon, while they can still be rolled."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils import timezone

from tenants.actions.keys import create_key, roll_key
from tenants.ending import warn_of_ending_keys
from tenants.models import ApiKey
from tests.console.api.asking import ask
from tests.console.conftest import World
from tests.tenants.conftest import SYSTEM, last_event


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
    assert {key.name for key, _ in owner.get(address).context["keys"]} == {"nightly", "support chat"}
    assert owner.get(f"{address}?keys=ending").context["keys"] == [(ending, [])]
    roll_key(by=SYSTEM, key=ending, overlap=timedelta(hours=1))
    assert owner.get(f"{address}?keys=ending").context["keys"] == []
    assert not owner.get(reverse("overview")).context["ending"]


def test_the_api_lists_them_alone_when_asked(world: World, ending: ApiKey) -> None:
    found = ask(world.client("owner"), "GET", "/keys?ending=true").json()["data"]
    assert [key["id"] for key in found] == [ending.pk]


def test_the_trail_is_warned_once_of_each_end(world: World, ending: ApiKey) -> None:
    now = timezone.now()
    assert warn_of_ending_keys(now - timedelta(days=12)) == 0  # there is time yet
    assert (warn_of_ending_keys(now), warn_of_ending_keys(now)) == (1, 0)
    event = last_event()
    assert (event.action, event.target_id) == ("key.expires_soon", ending.pk)
    assert event.tenant_id == world.cast.tenant.pk
    roll_key(by=SYSTEM, key=ending, overlap=timedelta(hours=1))  # ends even sooner, and on purpose
    assert warn_of_ending_keys(now) == 0
