"""What the console's middlewares give every request, on both kinds of stack."""

from __future__ import annotations

import re

import pytest
from asgiref.sync import sync_to_async
from django.db import connections
from django.test import AsyncClient, Client

from tenants.actions.members import add_member, remove_member
from tenants.scoping import ScopeError
from tests.tenants.conftest import SYSTEM, Cast, build_cast

pytestmark = pytest.mark.urls("tests.console.request_urls")


@pytest.fixture
def team(db: None) -> Cast:
    return build_cast()


def signed_in(team: Cast, who: str) -> Client:
    client = Client()
    client.force_login(team.users[who])
    return client


def test_a_request_gets_an_id_and_the_answer_carries_it(db: None) -> None:
    answer = Client().get("/hello")
    assert re.fullmatch(r"req_[a-z0-9]{26}", answer["x-request-id"])


def test_a_clients_own_well_formed_id_is_kept(team: Cast) -> None:
    answer = signed_in(team, "viewer").get("/seen", headers={"x-request-id": "trace-1.a_B"})
    assert answer["x-request-id"] == answer.json()["request_id"] == "trace-1.a_B"


@pytest.mark.parametrize("given", ["", "with space", "x" * 65, "a/b", "é"])
def test_a_malformed_id_is_replaced(db: None, given: str) -> None:
    answer = Client().get("/hello", headers={"x-request-id": given})
    assert answer["x-request-id"].startswith("req_")


def test_a_visitor_has_no_scope_at_all(db: None) -> None:
    with pytest.raises(ScopeError):
        Client().get("/seen")


def test_a_member_of_one_tenant_sees_it_without_choosing(team: Cast) -> None:
    seen = signed_in(team, "viewer").get("/seen").json()
    assert (seen["tenant"], seen["tenants"], seen["members"]) == ("acme", ["acme"], 5)
    assert seen["rights"] == ["view", "view_usage"]


def test_a_member_of_two_sees_both_until_one_is_chosen(team: Cast) -> None:
    add_member(by=SYSTEM, tenant=team.other, user=team.users["viewer"], role="owner")
    client = signed_in(team, "viewer")
    seen = client.get("/seen").json()
    assert (seen["tenant"], seen["tenants"], seen["members"]) == (None, ["acme", "globex"], 7)
    assert client.get(f"/switch/{team.other.pk}").status_code == 200
    seen = client.get("/seen").json()
    assert (seen["tenant"], seen["members"], "manage_owners" in seen["rights"]) == ("globex", 2, True)
    client.get("/switch/all")
    assert client.get("/seen").json()["tenant"] is None


def test_an_operator_sees_all_or_one(team: Cast) -> None:
    client = signed_in(team, "operator")
    seen = client.get("/seen").json()
    assert (seen["tenant"], seen["members"], "manage_fleet" in seen["rights"]) == (None, 6, True)
    client.get(f"/switch/{team.other.pk}")
    assert client.get("/seen").json()["members"] == 1


def test_someone_without_a_tenant_sees_nothing(team: Cast) -> None:
    seen = signed_in(team, "nobody").get("/seen").json()
    assert (seen["tenant"], seen["tenants"], seen["rights"], seen["members"]) == (None, [], [], 0)


def test_switching_to_a_foreign_tenant_is_not_found_and_changes_nothing(team: Cast) -> None:
    client = signed_in(team, "viewer")
    foreign, unknown = (client.get(f"/switch/{id}") for id in (team.other.pk, "tnt_0000000000000000"))
    assert foreign.status_code == unknown.status_code == 404
    assert client.get("/seen").json()["tenant"] == "acme"


def test_a_chosen_tenant_is_forgotten_when_its_membership_ends(team: Cast) -> None:
    client = signed_in(team, "viewer")
    client.get(f"/switch/{team.tenant.pk}")
    remove_member(by=SYSTEM, membership=team.members["viewer"])
    seen = client.get("/seen").json()
    assert (seen["tenant"], seen["members"]) == (None, 0)


@pytest.mark.django_db(transaction=True)
async def test_async_views_run_in_the_same_scope() -> None:
    team = await sync_to_async(build_cast)()
    client = AsyncClient()
    await client.aforce_login(team.users["viewer"])
    answer = await client.get("/seen-async")
    assert answer.json() == {"actor": "viewer", "members": 5}
    assert answer["x-request-id"].startswith("req_")
    await sync_to_async(connections.close_all)()
