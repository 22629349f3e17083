"""Addresses and forms as somebody hostile types them: an answer that says so, never an error of ours."""

from __future__ import annotations

import pytest
from django.urls import reverse

from tests.console.conftest import World

LISTS = ("models", "tenants", "usage", "audit", "audit_export", "profiles", "fleet", "overview")
QUERIES = (
    "page=-1",
    "page=99999999999999999999",
    "sort=__class__",
    "sort=--name",
    "q=%FF%FE",
    "q=%ED%A0%80",
    "days=%C2%B2",
    "days=-1",
    "since=9999-12-31",
    "until=9999-12-31",
    "until=0001-01-01",
    "since=2026-02-31",
)


@pytest.mark.parametrize("name", LISTS)
def test_a_list_ignores_what_it_does_not_know(world: World, name: str) -> None:
    client = world.client("operator")
    found = {query: client.get(f"{reverse(name)}?{query}").status_code for query in QUERIES}
    assert found == dict.fromkeys(QUERIES, 200)


@pytest.mark.parametrize("who", ["operator", "stranger"])
@pytest.mark.parametrize(
    "address",
    [
        "/models/?q=%00",
        "/usage/?model=%00",
        "/audit/?action=%00",
        "/audit/export?since=%00",
        "/models/%00/",
        "/tenants/a%00b/edit",
        "/members/%00/role",
        "/keys/%00/revoke",
        "/profiles/%00/",
        "/bindings/%00/unbind",
        "/deployments/%00/scale",
    ],
)
def test_nul_is_refused_before_anything_is_asked_for_it(world: World, who: str, address: str) -> None:
    assert world.client(who).get(address).status_code == 400


def test_nul_is_refused_in_a_choice_of_tenant(world: World) -> None:
    assert world.client("operator").post(reverse("switch_tenant"), {"tenant": "\0"}).status_code == 400


@pytest.mark.parametrize(
    "typed",
    ["[" * 100_000, "9" * 5_000, '"\\ud800"', "[NaN]", "{"],
    ids=["deep", "long", "half", "nan", "no"],
)
def test_the_playground_says_what_is_no_json(world: World, typed: str) -> None:
    values = {"model": "minilm", "text": "x", "inputs": typed, "key": "tg_x"}
    answer = world.client("viewer").post(reverse("playground"), values)
    assert answer.status_code == 422
    assert "Enter a valid JSON" in answer.content.decode()
