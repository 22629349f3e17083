"""Sign-in: by user name or e-mail, limited in rate; nobody signs up."""

from __future__ import annotations

import pytest
from django.contrib.auth.hashers import MD5PasswordHasher
from django.core.cache import cache
from django.test import Client

from tenants.actions.users import create_user
from tenants.models import AuditEvent, User
from tenants.scoping import all_tenants
from tests.tenants.conftest import SYSTEM, last_event

pytestmark = [pytest.mark.urls("tests.console.request_urls"), pytest.mark.django_db]
PASSWORD = "correct horse battery staple"


@pytest.fixture(autouse=True)
def person(db: None) -> User:
    cache.clear()
    return create_user(by=SYSTEM, username="ada", email="ada@example.org", password=PASSWORD)


def _is_signed_in(client: Client) -> bool:
    return "_auth_user_id" in client.session


@pytest.mark.parametrize("login", ["ada", "ADA", "ada@example.org", "Ada@Example.org"])
def test_people_sign_in_by_user_name_or_email(login: str) -> None:
    client = Client()
    answer = client.post("/account/login/", {"login": login, "password": PASSWORD})
    assert answer.status_code == 302
    assert _is_signed_in(client)


def test_a_wrong_password_is_refused() -> None:
    client = Client()
    client.post("/account/login/", {"login": "ada", "password": "wrong"})
    assert not _is_signed_in(client)


def test_guessing_is_slowed_down() -> None:
    client = Client()
    for _ in range(6):
        client.post("/account/login/", {"login": "ada", "password": "wrong"})
    client.post("/account/login/", {"login": "ada", "password": PASSWORD})
    assert not _is_signed_in(client)


def test_signing_in_and_out_is_in_the_audit_trail(person: User) -> None:
    client = Client()
    client.post("/account/login/", {"login": "ada", "password": PASSWORD}, REMOTE_ADDR="203.0.113.9")
    event = last_event()
    assert (event.action, event.actor_id, event.ip) == ("user.signed_in", str(person.pk), "203.0.113.9")
    client.post("/account/logout/")
    assert (last_event().action, last_event().target_name) == ("user.signed_out", "ada")


def test_a_failed_sign_in_names_the_account_but_never_what_was_typed() -> None:
    client = Client()
    client.post("/account/login/", {"login": "ada", "password": "wrong-secret"})
    event = last_event()
    assert (event.action, event.outcome, event.actor_type) == ("user.sign_in_failed", "failure", "anonymous")
    assert event.target_name == "ada"
    client.post("/account/login/", {"login": "my-password-by-mistake", "password": "x"})
    assert last_event().target_name == "unknown account"
    with all_tenants("a test"):
        everything = str(list(AuditEvent.objects.values()))
    assert "wrong-secret" not in everything and "by-mistake" not in everything


def test_a_password_changed_by_its_owner_is_in_the_audit_trail() -> None:
    client = Client()
    client.post("/account/login/", {"login": "ada", "password": PASSWORD})
    fresh = "another horse, another battery"
    client.post(
        "/account/password/change/", {"oldpassword": PASSWORD, "password1": fresh, "password2": fresh}
    )
    with all_tenants("a test"):
        assert AuditEvent.objects.filter(action="user.password_changed", actor_name="ada").count() == 1


def test_nobody_signs_up() -> None:
    answer = Client().get("/account/signup/")
    assert "account/signup_closed.html" in [template.name for template in answer.templates]
    Client().post(
        "/account/signup/",
        {"email": "eve@example.org", "username": "eve", "password1": PASSWORD, "password2": PASSWORD},
    )
    assert not User.objects.filter(username="eve").exists()


def test_an_unknown_account_takes_as_many_password_hashes_as_a_known_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise the time of a refusal tells which names and e-mail addresses have accounts."""
    hashed: list[str] = []
    encode = MD5PasswordHasher.encode

    def count(self: MD5PasswordHasher, password: str, salt: str) -> str:
        hashed.append(password)
        return encode(self, password, salt)

    monkeypatch.setattr(MD5PasswordHasher, "encode", count)
    found = {}
    for login in ("ada", "ada@example.org", "nobody", "nobody@example.org"):
        cache.clear()
        hashed.clear()
        Client().post("/account/login/", {"login": login, "password": "wrong"})
        found[login] = len(hashed)
    assert found == dict.fromkeys(found, 1)


@pytest.mark.urls("console.urls")
def test_nobody_claims_an_address_that_others_add_members_by(person: User) -> None:
    client = Client()
    client.force_login(person)
    values = {"email": "ceo@example.com", "action_add": ""}
    assert client.post("/accounts/email/", values).status_code == 404
    assert client.get("/accounts/email/").status_code == 404
    assert client.get("/accounts/password/change/").status_code == 200
