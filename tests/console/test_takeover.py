"""Ways to become somebody else, or to stay in when one should be out. Each is closed."""

from __future__ import annotations

from typing import Any

import pytest
from django.core import mail
from django.core.cache import cache
from django.test import Client

from tenants.access import access_account
from tenants.actions.invitations import invite, join_as_new_person
from tenants.actions.users import create_user
from tenants.actors import Actor
from tenants.errors import Invalid
from tenants.models import User
from tests.console.conftest import World
from tests.tenants.conftest import SYSTEM

PASSWORD = "correct horse battery staple"


@pytest.fixture
def ada(world: World) -> User:
    cache.clear()
    return create_user(by=SYSTEM, username="ada", email="ada@example.org", password=PASSWORD)


def try_password(login: str, password: str, ip: str = "203.0.113.9", **headers: str) -> bool:
    client = Client(REMOTE_ADDR=ip, headers=headers)
    client.post("/accounts/login/", {"login": login, "password": password})
    return "_auth_user_id" in client.session


# ---------------------------------------------------------------- another's name


def test_nobody_who_is_invited_calls_themselves_like_anothers_address(world: World) -> None:
    asked = {"tenant": world.cast.tenant, "email": "eve@example.org", "role": "viewer", "by_mail": True}
    row, _ = invite(by=world.cast.actor("owner"), **asked)
    nobody = Actor.anonymous()
    with pytest.raises(Invalid) as refused:
        join_as_new_person(by=nobody, invitation=row, username="Owner@example.org", password=PASSWORD)
    assert list(refused.value.errors) == ["username"]
    assert join_as_new_person(by=nobody, invitation=row, username="EVE@example.org", password=PASSWORD).pk


def test_no_address_belongs_to_an_account_that_is_another_ones_name(world: World) -> None:
    User.objects.create(username="old@example.org")  # from before names were checked
    with pytest.raises(Invalid) as refused:
        create_user(by=SYSTEM, username="eve", email="Old@example.org")
    assert list(refused.value.errors) == ["email"]


def test_an_address_means_its_owner_and_not_who_is_called_like_it(world: World) -> None:
    User.objects.create(
        username="owner@example.org", pk=-1
    )  # from before names were checked, and found first
    by, tenant = world.cast.actor("operator"), world.cast.tenant
    assert access_account(by, tenant.pk, "owner@example.org").username == "owner"


def test_an_address_that_only_looks_alike_in_capitals_is_another_one(world: World) -> None:
    create_user(by=SYSTEM, username="mike", email="mike@example.org")
    by, tenant = world.cast.actor("operator"), world.cast.tenant
    for address in ("m\u0131ke@example.org", "mi\u212ae@example.org", "mike@example.or\u0261"):
        with pytest.raises(Invalid):
            access_account(by, tenant.pk, address)
    assert access_account(by, tenant.pk, "MIKE@Example.org").username == "mike"


# ---------------------------------------------------------------- guessing


HEADERS = ("x-forwarded-for", "x-real-ip", "forwarded", "true-client-ip", "cf-connecting-ip")


@pytest.mark.parametrize("header", HEADERS)
def test_no_header_makes_a_new_address_of_ones_own(ada: User, header: str) -> None:
    for number in range(10):
        try_password(f"somebody-{number}", "wrong", **{header: f"198.51.100.{number}"})
    assert not try_password("ada", PASSWORD, **{header: "198.51.100.200"})


@pytest.mark.parametrize("login", [" ada", "ada ", "ADA", "ada\t", "ada@example.org ", "Ada@EXAMPLE.org"])
def test_no_spelling_of_a_name_is_a_fresh_start(ada: User, login: str) -> None:
    for number in range(5):
        try_password(login, "wrong", ip=f"198.51.100.{number}")
    assert not try_password(login, PASSWORD) and not try_password("ada", PASSWORD)


# ---------------------------------------------------------------- staying in


def test_somebody_without_a_password_makes_none_by_themselves(world: World) -> None:
    """Else whoever is no longer let in by the provider would have another way in."""
    client = world.client("owner")
    client.post("/accounts/password/set/", {"password1": PASSWORD, "password2": PASSWORD})
    assert not User.objects.get(username="owner").has_usable_password()
    assert "/accounts/password/change/" not in client.get("/").content.decode()


def test_a_letter_renews_a_password_and_gives_none(ada: User, settings: Any) -> None:
    settings.SENDS_MAIL = True
    for email in ("owner@example.org", "ada@example.org", "nobody-at-all@example.org"):
        answer = Client().post("/accounts/password/reset/", {"email": email})
        assert answer.status_code == 302
    renewing = [letter.to for letter in mail.outbox if "/password/reset/key/" in letter.body]
    assert renewing == [["ada@example.org"]]


def test_where_no_letter_reaches_people_no_link_is_made(ada: User) -> None:
    assert Client().get("/accounts/password/reset/").status_code == 404
    assert Client().post("/accounts/password/reset/", {"email": "ada@example.org"}).status_code == 404
    assert not mail.outbox


def test_what_a_person_was_shown_is_kept_by_no_cache(world: World) -> None:
    for path in ("/", "/sessions/", f"/tenants/{world.cast.tenant.slug}/"):
        assert world.client("owner").get(path).headers["Cache-Control"] == "private, no-store"


# ---------------------------------------------------------------- being led away

ELSEWHERE = (
    "//evil.example",
    "https://evil.example/",
    "/\\evil.example",
    "javascript:alert(1)",
    "http:evil.example",
    "https:///evil.example",
    "\t//evil.example",
)


@pytest.mark.parametrize("where", ELSEWHERE)
def test_no_link_to_us_leads_elsewhere(ada: User, where: str) -> None:
    client = Client()
    answers = [
        client.post("/accounts/login/", {"login": "ada", "password": PASSWORD, "next": where}),
        client.post("/language", {"next": where, "language": "en"}),
        client.post("/tenant", {"next": where, "tenant": ""}),
        client.post(f"/accounts/reauthenticate/?next={where}", {"password": PASSWORD}),
        client.post("/accounts/logout/", {"next": where}),
    ]
    assert [answer.status_code for answer in answers] == [302] * len(answers)
    assert not [answer.url for answer in answers if "evil" in answer.url]
