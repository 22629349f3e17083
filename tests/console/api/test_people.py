"""People over the API: how they are invited, where they are signed in, who looks after organisations."""

from __future__ import annotations

from typing import Any

import pytest
from django.core import mail
from django.db import connection
from django.test import Client

from tenants.actions.users import create_user
from tests.console.api.asking import ask, token_of, with_key
from tests.console.conftest import World, sign_in
from tests.tenants.conftest import SYSTEM, last_event

ONCE = {"link": None, "is_mailed": None}
INVITED = {"email": "new@example.org", "role": "developer"}


def invite(world: World, client: Client, **headers: str) -> Any:
    return ask(client, "POST", f"/tenants/{world.cast.tenant.pk}/invitations", INVITED, **headers)


def made(world: World, **organisation: Any) -> tuple[Client, str]:
    client = world.client("operator")
    return client, ask(client, "POST", "/organisations", {"name": "Globex", **organisation}).json()["id"]


def test_a_key_invites_and_hands_the_link_on_once(world: World) -> None:
    client = with_key(token_of(world, "manage:write", "usage:read"))
    first = invite(world, client, Idempotency_Key='"once"').json()
    assert first["link"].startswith("http://testserver/join/")
    assert not first["is_mailed"]
    assert invite(world, client, Idempotency_Key='"once"').json() == {**first, **ONCE}
    assert "link" not in ask(world.client("owner"), "GET", f"/invitations/{first['id']}").json()


def test_where_mail_is_sent_no_answer_holds_the_link(world: World, settings: Any) -> None:
    settings.SENDS_MAIL = True
    answer = invite(world, world.client("admin")).json()
    assert (answer["link"], answer["is_mailed"]) == (None, True)
    assert mail.outbox[0].to == [INVITED["email"]]


def test_no_lock_is_held_while_a_mail_server_is_waited_for(
    world: World, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However slow it is, and although the answer is kept."""
    settings.SENDS_MAIL = True
    outside, depths = len(connection.savepoint_ids), []

    def unsent(*_: Any) -> bool:
        depths.append(len(connection.savepoint_ids))
        return False

    monkeypatch.setattr("console.api.invitations.send_invitation", unsent)
    client = world.client("admin")
    first = invite(world, client, Idempotency_Key='"once"').json()
    assert invite(world, client, Idempotency_Key='"once"').json() == {**first, **ONCE}
    assert ask(client, "POST", f"/invitations/{first['id']}/renew").json()["is_mailed"] is False
    assert depths == [outside, outside]


def test_a_rehearsed_invitation_sends_nothing(world: World, settings: Any) -> None:
    settings.SENDS_MAIL = True
    path = f"/tenants/{world.cast.tenant.pk}/invitations?dry_run=true"
    assert ask(world.client("admin"), "POST", path, INVITED).status_code in (200, 422)
    assert mail.outbox == []


def test_an_invitation_that_is_sent_again_has_another_link(world: World) -> None:
    client = world.client("admin")
    first = invite(world, client).json()
    second = ask(client, "POST", f"/invitations/{first['id']}/renew").json()
    dead, alive = (Client().get(sent["link"]).status_code for sent in (first, second))
    assert (second["id"], dead, alive) == (first["id"], 404, 200)


def test_nobody_invites_above_themselves_or_twice(world: World) -> None:
    client, address = world.client("admin"), f"/tenants/{world.cast.tenant.pk}/invitations"
    assert ask(client, "POST", address, {**INVITED, "role": "owner"}).status_code == 403
    assert [invite(world, client).status_code for _ in range(2)] == [201, 422]


def test_a_withdrawn_invitation_stays_withdrawn(world: World) -> None:
    client = world.client("admin")
    address = f"/invitations/{invite(world, client).json()['id']}/withdraw"
    assert ask(client, "POST", address).json()["state"] == "withdrawn"
    assert ask(client, "POST", address).status_code == 409


def test_an_organisation_is_made_changed_and_refuses_what_changed_meanwhile(world: World) -> None:
    client, organisation = made(world, max_tenants=2)
    address = f"/organisations/{organisation}"
    tag = ask(client, "GET", address)["ETag"]
    assert ask(client, "PATCH", address, {"max_tenants": 3}, If_Match=tag).json()["max_tenants"] == 3
    assert ask(client, "PATCH", address, {"name": "Initech"}, If_Match=tag).status_code == 412
    assert ask(client, "PATCH", address, {"owner": "me"}).json()["errors"][0]["pointer"] == "/owner"


def test_its_admins_make_tenants_in_it_up_to_its_maximum(world: World) -> None:
    operator, organisation = made(world, max_tenants=1)
    ask(operator, "POST", f"/organisations/{organisation}/admins", {"login": "nobody"})
    client, address = world.client("nobody"), f"/organisations/{organisation}/tenants"
    tenant = ask(client, "POST", address, {"slug": "globex-one", "name": "One"}).json()
    assert tenant["organisation"] == organisation
    assert ask(client, "POST", address, {"slug": "globex-two", "name": "Two"}).status_code in (403, 409)
    assert [row["id"] for row in ask(client, "GET", address).json()["data"]] == [tenant["id"]]


def test_who_looks_after_it_is_made_by_somebody_who_has_just_signed_in(world: World) -> None:
    _, organisation = made(world)
    late = Client()
    sign_in(late, world.cast.users["operator"], ago_s=3600)
    answer = ask(late, "POST", f"/organisations/{organisation}/admins", {"login": "nobody"})
    assert (answer.status_code, answer.json()["code"]) == (403, "sign_in_again")


def test_a_tenant_moves_in_and_out(world: World) -> None:
    client, organisation = made(world)
    address = f"/organisations/{organisation}/tenants/{world.cast.tenant.pk}"
    assert ask(client, "PUT", address).json()["organisation"] == organisation
    assert ask(client, "DELETE", address).status_code == 204
    assert ask(client, "DELETE", address).status_code == 404


def test_people_see_and_end_their_own_sessions(world: World) -> None:
    here, there = world.client("viewer"), world.client("viewer")
    rows = ask(here, "GET", "/sessions").json()["data"]
    assert sorted(row["is_this_one"] for row in rows) == [False, True]
    other = next(row["id"] for row in rows if not row["is_this_one"])
    assert ask(world.client("owner"), "DELETE", f"/sessions/{other}").status_code == 404
    assert ask(here, "DELETE", f"/sessions/{other}").status_code == 204
    assert (ask(here, "GET", "/me").status_code, ask(there, "GET", "/me").status_code) == (200, 401)


def test_every_other_session_ends_at_once(world: World) -> None:
    here, there = world.client("viewer"), world.client("viewer")
    assert ask(here, "POST", "/sessions/end-others").json() == {"ended": 1}
    assert (ask(here, "GET", "/me").status_code, ask(there, "GET", "/me").status_code) == (200, 401)


def test_an_operator_signs_somebody_out_everywhere(world: World) -> None:
    theirs, account = world.client("viewer"), world.cast.users["viewer"].pk
    assert len(ask(world.client("support"), "GET", f"/accounts/{account}/sessions").json()["data"]) == 1
    answer = ask(world.client("operator"), "POST", f"/accounts/{account}/end-sessions")
    assert answer.json() == {"ended": 1}
    assert ask(theirs, "GET", "/me").status_code == 401


def test_a_lost_second_factor_is_reset(world: World) -> None:
    person = create_user(by=SYSTEM, username="lost")
    person.authenticator_set.create(type="totp", data={})
    operator = world.client("operator")
    assert ask(operator, "GET", f"/accounts/{person.pk}").json()["has_second_factor"]
    answer = ask(operator, "POST", f"/accounts/{person.pk}/reset-second-factor")
    assert not answer.json()["has_second_factor"]
    assert last_event().action == "user.mfa_reset"


def test_people_are_found_by_part_of_their_name(world: World) -> None:
    found = ask(world.client("support"), "GET", "/accounts?q=DEVEL").json()["data"]
    assert [row["username"] for row in found] == ["developer"]
