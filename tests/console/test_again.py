"""What a stolen session must not be able to do asks once more who it is."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import pytest
from django.core.cache import cache
from django.test import Client

from tenants.actions.organisations import create_organisation
from tenants.actions.users import create_user
from tenants.models import AuditEvent, User
from tenants.scoping import all_tenants
from tests.console.api.asking import ask
from tests.console.conftest import World, sign_in
from tests.tenants.conftest import SYSTEM

PASSWORD = "correct horse battery staple"
LONG_AGO_S = 301


@pytest.fixture
def root(world: World) -> User:
    cache.clear()
    return create_user(by=SYSTEM, username="root", password=PASSWORD, platform_role="operator")


def pages(world: World) -> list[str]:
    person = f"/people/{world.cast.users['viewer'].pk}"
    organisation = create_organisation(by=SYSTEM, name="Initech").pk
    return [
        f"{person}/role",
        f"{person}/password",
        f"{person}/switch-off",
        f"{person}/second-factor/reset",
        f"/organisations/{organisation}/admins/new",
        f"/tenants/{world.cast.tenant.slug}/members/new-account",
        f"/models/{world.model.name}/versions/{world.version.number}/trust",
    ]


def signed_in(user: User, ago_s: float = LONG_AGO_S) -> Client:
    client = Client()
    sign_in(client, user, ago_s)
    return client


def test_an_old_session_is_asked_before_the_form_and_before_the_deed(world: World, root: User) -> None:
    client = signed_in(root)
    for path in pages(world):
        for answer in (client.get(path), client.post(path, {"name": "viewer", "platform_role": "operator"})):
            assert answer.status_code == 302, path
            assert urlsplit(answer.url).path == "/accounts/reauthenticate/", path
            assert path.replace("/", "%2F") in answer.url
    viewer = User.objects.get(username="viewer")
    assert (viewer.platform_role, viewer.is_active) == ("", True)


def test_a_session_that_knows_nothing_of_a_sign_in_is_asked_too(world: World, root: User) -> None:
    client = Client()
    client.force_login(root)
    assert client.get(pages(world)[0]).status_code == 302


def test_a_fresh_one_is_not(world: World, root: User) -> None:
    client = signed_in(root, ago_s=60)
    assert {client.get(path).status_code for path in pages(world)} == {200}


def test_after_the_password_the_form_opens_for_minutes(world: World, root: User) -> None:
    client, path = signed_in(root), pages(world)[0]
    there = client.get(path).url
    back = client.post(there, {"password": PASSWORD})
    assert (back.status_code, back.url) == (302, path)
    assert client.get(path).status_code == 200
    assert client.post(path, {"platform_role": "support"}).status_code == 302
    assert User.objects.get(username="viewer").platform_role == "support"


def test_a_wrong_password_opens_nothing(world: World, root: User) -> None:
    client, path = signed_in(root), pages(world)[0]
    client.post(client.get(path).url, {"password": "wrong"})
    assert client.get(path).status_code == 302
    with all_tenants("a test"):
        event = AuditEvent.objects.get(action="user.sign_in_failed")
    assert (event.actor_id, event.target_id, event.reason) == (
        str(root.pk),
        str(root.pk),
        "wrong password or account",
    )


def test_guessing_there_is_slowed_down(world: World, root: User) -> None:
    client, path = signed_in(root), pages(world)[0]
    there = client.get(path).url
    for _ in range(10):
        client.post(there, {"password": "wrong"})
    client.post(there, {"password": PASSWORD})
    assert client.get(path).status_code == 302


def test_a_dialog_is_led_there_whole(world: World, root: User) -> None:
    answer = signed_in(root).get(pages(world)[0], headers={"hx-request": "true"})
    assert (answer.status_code, urlsplit(answer["HX-Redirect"]).path) == (204, "/accounts/reauthenticate/")


def test_whoever_has_no_way_to_show_it_is_told_to_sign_in_again(world: World) -> None:
    answer = signed_in(world.cast.users["operator"]).get(pages(world)[0])
    assert answer.status_code == 403 and "Sign out and in again" in answer.content.decode()


def test_strangers_learn_nothing_by_it(world: World) -> None:
    client = signed_in(world.cast.users["owner"])
    assert client.get(f"/people/{world.cast.users['viewer'].pk}/role").status_code == 404


def test_the_api_says_so_in_its_own_shape(world: World, root: User) -> None:
    person = world.cast.users["viewer"].pk
    asked: list[tuple[str, str, Any]] = [
        ("PATCH", f"/accounts/{person}", {"platform_role": "operator"}),
        ("POST", "/accounts", {"username": "new", "platform_role": "operator"}),
        ("POST", f"/versions/{world.version.pk}/trust", {"reason": "read"}),
    ]
    for method, path, body in asked:
        answer = ask(signed_in(root), method, path, body)
        assert (answer.status_code, answer.json()["code"]) == (403, "sign_in_again"), path
    assert User.objects.get(pk=person).platform_role == ""
