"""Tenants, their members and their keys over the API."""

from __future__ import annotations

import pytest
from django.test import Client

from tenants.actions.tenants import create_tenant
from tenants.models import ApiKey, AuditEvent, Tenant
from tenants.scoping import all_tenants
from tests.console.api.asking import ask, pointers, token_of, with_key
from tests.console.conftest import World
from tests.tenants.conftest import SYSTEM, count_events, last_event


@pytest.fixture
def operator(world: World) -> Client:
    return world.client("operator")


@pytest.fixture
def owner(world: World) -> Client:
    return world.client("owner")


def test_a_tenant_is_made_changed_suspended_and_resumed(operator: Client) -> None:
    made = ask(operator, "POST", "/tenants", {"slug": "initech", "name": "Initech", "requests_per_s": 5})
    assert made.status_code == 201, made.content
    address = made["location"]
    assert address == f"/api/v1/tenants/{made.json()['id']}"
    assert ask(operator, "GET", address).json() == made.json()
    changed = ask(operator, "PATCH", address, {"requests_per_s": None, "time_zone": "Asia/Shanghai"})
    assert (changed.json()["requests_per_s"], changed.json()["time_zone"]) == (None, "Asia/Shanghai")
    paused = ask(operator, "POST", f"{address}/suspend", {"reason": "unpaid"}).json()
    assert (paused["is_active"], paused["suspended_reason"]) == (False, "unpaid")
    assert ask(operator, "POST", f"{address}/suspend", {}).status_code == 409
    assert ask(operator, "POST", f"{address}/resume").json()["is_active"] is True
    assert last_event().action == "tenant.resumed"


def test_an_owner_renames_but_does_not_raise_limits(world: World, owner: Client) -> None:
    address = f"/tenants/{world.cast.tenant.pk}"
    assert ask(owner, "PATCH", address, {"name": "Acme & Co"}).json()["name"] == "Acme & Co"
    assert ask(owner, "PATCH", address, {"burst": 3, "requests_per_s": 2}).status_code == 403
    assert ask(owner, "POST", "/tenants", {"slug": "mine", "name": "Mine"}).status_code == 403


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"slug": "Bad Slug", "name": "x"}, "/slug"),
        ({"slug": "admin", "name": "x"}, "/slug"),
        ({"slug": "fine-name"}, "/name"),
        ({"slug": "fine-name", "name": 5}, "/name"),
        ({"slug": "fine-name", "name": "x", "burst": "3"}, "/burst"),
        ({"slug": "fine-name", "name": "x", "burst": True}, "/burst"),
        ({"slug": "fine-name", "name": "x", "requests_per_s": 0}, "/requests_per_s"),
        ({"slug": "fine-name", "name": "x", "colour": "red"}, "/colour"),
        ({"slug": "fine-name", "name": "x\u0000"}, "/name"),
        ({"slug": "fine-name", "name": "x", "time_zone": "Mars/Olympus"}, "/time_zone"),
        ([], ""),
    ],
)
def test_what_is_wrong_is_pointed_at(operator: Client, body: object, pointer: str) -> None:
    answer = ask(operator, "POST", "/tenants", body)
    assert (answer.status_code, answer["content-type"]) == (422, "application/problem+json")
    assert pointer in pointers(answer)


def test_lists_hold_what_one_may_see(world: World, operator: Client, owner: Client) -> None:
    slugs = [row["slug"] for row in ask(operator, "GET", "/tenants").json()["data"]]
    assert {"acme", "globex"} <= set(slugs)
    assert [row["slug"] for row in ask(owner, "GET", "/tenants").json()["data"]] == ["acme"]
    assert [r["slug"] for r in ask(operator, "GET", "/tenants?slug=globex").json()["data"]] == ["globex"]
    assert ask(owner, "GET", "/tenants?slug=globex").json()["data"] == []
    assert ask(owner, "GET", f"/keys?tenant={world.cast.other.pk}").json()["data"] == []


def test_the_tenant_chosen_in_the_console_hides_nothing_here(world: World, operator: Client) -> None:
    operator.post("/tenant", {"tenant": world.cast.other.pk})
    rows = ask(operator, "GET", f"/tenants/{world.cast.tenant.pk}/members").json()["data"]
    assert len(rows) == 5


def test_pages_follow_each_other_while_rows_come_and_go(operator: Client) -> None:
    for number in range(4):
        create_tenant(by=SYSTEM, slug=f"team-{number}", name=f"Team {number}")
    first = ask(operator, "GET", "/tenants?limit=2").json()
    assert [row["slug"] for row in first["data"]] == ["team-3", "team-2"]
    create_tenant(by=SYSTEM, slug="team-9", name="Newer")
    Tenant.objects.filter(slug="team-2").delete()
    second = ask(operator, "GET", f"/tenants?limit=2&after={first['next_cursor']}").json()
    assert [row["slug"] for row in second["data"]] == ["team-1", "team-0"]


@pytest.mark.parametrize("query", ["limit=0", "limit=201", "limit=x", "after=zzz", "after=%FF", "colour=red"])
def test_wrong_queries_are_refused(operator: Client, query: str) -> None:
    assert ask(operator, "GET", f"/tenants?{query}").status_code == 422


# ---------------------------------------------------------------- members


def test_a_member_is_added_changed_and_removed(world: World, owner: Client) -> None:
    body = {"login": "nobody", "role": "viewer"}
    made = ask(world.client("operator"), "POST", f"/tenants/{world.cast.tenant.pk}/members", body)
    assert (made.status_code, made.json()["user"]["username"]) == (201, "nobody")
    address = made["location"]
    assert ask(owner, "PATCH", address, {"role": "auditor"}).json()["role"] == "auditor"
    assert ask(owner, "DELETE", address).status_code == 204
    assert ask(owner, "GET", address).status_code == 404


def test_an_unknown_login_is_a_wrong_field_and_a_second_role_too(world: World, owner: Client) -> None:
    address = f"/tenants/{world.cast.tenant.pk}/members"
    assert pointers(ask(owner, "POST", address, {"login": "who", "role": "viewer"})) == ["/login"]
    assert ask(owner, "POST", address, {"login": "viewer", "role": "viewer"}).status_code == 422
    assert pointers(ask(owner, "POST", address, {"login": "viewer", "role": "king"})) == ["/role"]


def test_who_has_an_account_is_told_to_nobody_who_never_met_them(world: World, owner: Client) -> None:
    address = f"/tenants/{world.cast.tenant.pk}/members"
    there, not_there = (
        ask(owner, "POST", address, {"login": login, "role": "viewer"}) for login in ("nobody", "who")
    )
    assert there.status_code == not_there.status_code == 422
    assert there.json() | {"request_id": ""} == not_there.json() | {"request_id": ""}


def test_the_last_owner_stays(world: World, owner: Client) -> None:
    address = f"/members/{world.cast.members['owner'].pk}"
    assert ask(owner, "DELETE", address).status_code == 409
    tag = ask(owner, "GET", address)["etag"]
    assert ask(owner, "PATCH", address, {"role": "viewer"}, if_match=tag).status_code == 409


# ---------------------------------------------------------------- keys


def test_a_keys_token_is_shown_once(world: World, owner: Client) -> None:
    address = f"/tenants/{world.cast.tenant.pk}/keys"
    made = ask(owner, "POST", address, {"name": "batch", "scopes": ["infer", "usage:read"]})
    assert made.status_code == 201, made.content
    token = made.json()["token"]
    assert token.startswith("tg_") and made["cache-control"] == "no-store"
    for path in (made["location"], address, "/keys"):
        assert token[-43:] not in ask(owner, "GET", path).content.decode()
    with all_tenants("a test looks for the secret"):
        assert not any(token[-43:] in repr(vars(event)) for event in AuditEvent.objects.all())


def test_a_key_is_rolled_once_and_works_beside_the_new_one_for_a_while(world: World, owner: Client) -> None:
    token_of(world, "infer", "manage:read", name="ci")
    old = next(k for k in ask(owner, "GET", "/keys").json()["data"] if k["name"] == "ci")
    answer = ask(owner, "POST", f"/keys/{old['id']}/roll", {"overlap_s": 3600})
    assert answer.status_code == 201, answer.content
    fresh = answer.json()
    assert (fresh["name"], fresh["scopes"], fresh["replaced_by"]) == ("ci", old["scopes"], None)
    assert ask(with_key(fresh["token"]), "GET", "/me").status_code == 200
    kept = ask(owner, "GET", f"/keys/{old['id']}").json()
    assert (kept["replaced_by"], kept["state"]) == (fresh["id"], "active")
    assert kept["expires_at"] is not None
    assert "token" not in ask(owner, "GET", answer["location"]).json()
    assert ask(owner, "POST", f"/keys/{old['id']}/roll", {}).status_code == 409
    assert ask(owner, "POST", f"/keys/{fresh['id']}/roll", {"overlap_s": -1}).status_code == 422


def test_a_key_is_revoked_once(world: World, owner: Client) -> None:
    address = f"/keys/{world.key.pk}"
    tag = ask(owner, "GET", address)["etag"]
    gone = ask(owner, "POST", f"{address}/revoke", if_match=tag).json()
    assert (gone["state"], gone["revoked_at"][-1]) == ("revoked", "Z")
    assert ask(owner, "POST", f"{address}/revoke").status_code == 409


def test_a_key_asks_within_its_scopes(world: World) -> None:
    reader = with_key(token_of(world, "manage:read"))
    tenant = f"/tenants/{world.cast.tenant.pk}"
    assert ask(reader, "GET", tenant).json()["slug"] == "acme"
    assert ask(reader, "PATCH", tenant, {"name": "Mine"}).status_code == 403
    writer = with_key(token_of(world, "manage:write", name="writer"))
    assert ask(writer, "PATCH", tenant, {"name": "Mine"}).json()["name"] == "Mine"
    assert last_event().actor_type == "api_key"
    assert ask(writer, "GET", f"/tenants/{world.cast.other.pk}").status_code == 404
    assert [row["slug"] for row in ask(writer, "GET", "/tenants").json()["data"]] == ["acme"]
    me = ask(writer, "GET", "/me").json()
    assert (me["type"], me["platform_rights"], me["tenants"][0]["slug"]) == ("api_key", [], "acme")


def test_a_key_that_only_infers_reads_no_list(world: World) -> None:
    client = with_key(token_of(world, "infer"))
    assert ask(client, "GET", "/tenants").json()["data"] == []
    assert ask(client, "GET", "/keys").json()["data"] == []
    assert ask(client, "GET", f"/tenants/{world.cast.tenant.pk}").status_code == 403


def test_a_key_of_an_operator_holds_no_right_on_the_platform(world: World) -> None:
    client = with_key(token_of(world, "manage:write", who="operator"))
    assert ask(client, "PATCH", f"/tenants/{world.cast.tenant.pk}", {"burst": 4}).status_code == 403
    assert ask(client, "POST", "/tenants", {"slug": "mine", "name": "Mine"}).status_code == 403


@pytest.mark.parametrize("kind", ["revoked", "wrong", "noise", "basic"])
def test_a_key_that_opens_nothing(world: World, kind: str) -> None:
    token = token_of(world, "manage:read")
    if kind == "revoked":
        with all_tenants("a test revokes"):
            ApiKey.objects.filter(name="robot").update(revoked_at="2026-01-01T00:00:00Z")
    given = {"wrong": token[:-1] + ("a" if token[-1] != "a" else "b"), "noise": "hello"}.get(kind, token)
    header = f"Basic {given}" if kind == "basic" else f"Bearer {given}"
    answer = ask(Client(headers={"authorization": header}), "GET", "/tenants")
    assert (answer.status_code, answer["www-authenticate"]) == (401, "Bearer")


def test_a_wrong_key_is_not_rescued_by_a_session(operator: Client) -> None:
    assert ask(operator, "GET", "/me", authorization="Bearer tg_nothing").status_code == 401


def test_reading_writes_no_event(world: World, operator: Client) -> None:
    before = count_events()
    for path in ("/tenants", "/keys", f"/tenants/{world.cast.tenant.pk}/members", "/me"):
        assert ask(operator, "GET", path).status_code == 200
    assert count_events() == before


# ---------------------------------------------------------------- accounts


def test_an_account_is_made_raised_and_switched_off(operator: Client) -> None:
    made = ask(operator, "POST", "/accounts", {"username": "sam", "email": "sam@example.org"})
    assert (made.status_code, made.json()["platform_role"]) == (201, "")
    address = made["location"]
    raised = ask(operator, "PATCH", address, {"platform_role": "support"}, if_match=made["etag"])
    assert raised.json()["platform_role"] == "support"
    assert ask(operator, "PATCH", address, {"is_active": False}).json()["is_active"] is False
    assert [a["id"] for a in ask(operator, "GET", "/accounts?username=SAM").json()["data"]] == [
        made.json()["id"]
    ]


def test_the_last_operator_stays_one(world: World, operator: Client) -> None:
    address = f"/accounts/{world.cast.users['operator'].pk}"
    assert ask(operator, "PATCH", address, {"platform_role": ""}).status_code == 409
    assert ask(operator, "PATCH", address, {"is_active": False}).status_code == 409


@pytest.mark.parametrize("account_id", ["0", "x", "²", "9" * 30])
def test_what_is_no_account(operator: Client, account_id: str) -> None:
    assert ask(operator, "GET", f"/accounts/{account_id}").status_code == 404
