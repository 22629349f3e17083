"""A key that makes keys never makes one that reaches beyond its own bounds."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from tenants.actions.keys import create_key, roll_key
from tenants.actors import Actor
from tenants.errors import Invalid
from tenants.models import ApiKey
from tests.tenants.conftest import Cast

SOON = timezone.now() + timedelta(days=2)
LATER = SOON + timedelta(days=30)
MANAGES = ["manage:write"]


def maker(team: Cast, **bounds: Any) -> Actor:
    key, _ = create_key(by=team.actor("owner"), tenant=team.tenant, name="maker", scopes=MANAGES, **bounds)
    key.creator = team.users["owner"]
    return Actor.of_key(key)


def made(team: Cast, by: Actor, **values: Any) -> ApiKey:
    key, _ = create_key(by=by, tenant=team.tenant, name="made", **values)
    return key


@pytest.mark.parametrize("networks", [None, ["0.0.0.0/0"], ["192.0.2.0/24", "198.51.100.0/24"], ["::/0"]])
def test_what_manages_stays_in_the_makers_networks(team: Cast, networks: list[str] | None) -> None:
    by = maker(team, allowed_networks=["192.0.2.0/24", "2001:db8::/32"])
    with pytest.raises(Invalid) as refused:
        made(team, by, scopes=MANAGES, allowed_networks=networks)
    assert list(refused.value.errors) == ["allowed_networks"]
    made(team, by, scopes=MANAGES, allowed_networks=["192.0.2.128/25", "2001:db8:1::/48"])


@pytest.mark.parametrize("expires_at", [None, LATER])
def test_what_manages_ends_with_its_maker(team: Cast, expires_at: Any) -> None:
    by = maker(team, expires_at=SOON)
    with pytest.raises(Invalid) as refused:
        made(team, by, scopes=MANAGES, expires_at=expires_at)
    assert list(refused.value.errors) == ["expires_at"]
    made(team, by, scopes=MANAGES, expires_at=SOON)


def test_a_key_of_some_models_gives_no_others(team: Cast) -> None:
    by = maker(team, allowed_models=["a", "b"])
    for models in (None, ["a", "c"]):
        with pytest.raises(Invalid) as refused:
            made(team, by, scopes=["infer"], allowed_models=models)
        assert list(refused.value.errors) == ["allowed_models"]
    made(team, by, scopes=["infer"], allowed_models=["b"])


def test_a_key_for_inference_may_be_for_elsewhere(team: Cast) -> None:
    by = maker(team, allowed_networks=["192.0.2.0/24"], expires_at=SOON)
    assert made(team, by, scopes=["infer"]).allowed_networks is None


def test_a_person_and_a_key_without_bounds_make_what_they_like(team: Cast) -> None:
    made(team, maker(team), scopes=MANAGES, allowed_networks=["192.0.2.0/24"], expires_at=LATER)
    assert create_key(by=team.actor("owner"), tenant=team.tenant, name="free", scopes=MANAGES)[0].pk


def test_a_bound_key_takes_the_place_of_none_that_reaches_further(team: Cast) -> None:
    by = maker(team, allowed_networks=["192.0.2.0/24"])
    wide, _ = create_key(by=team.actor("owner"), tenant=team.tenant, name="wide", scopes=MANAGES)
    with pytest.raises(Invalid) as refused:
        roll_key(by=by, key=wide, overlap=timedelta(0))
    assert list(refused.value.errors) == ["allowed_networks"]
