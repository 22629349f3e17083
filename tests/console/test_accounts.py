"""Sign-in: by user name or e-mail, limited in rate; nobody signs up."""

from __future__ import annotations

import pytest
from django.core.cache import cache
from django.test import Client

from tenants.actions.users import create_user
from tenants.models import User
from tests.tenants.conftest import SYSTEM

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


def test_nobody_signs_up() -> None:
    Client().post(
        "/account/signup/",
        {"email": "eve@example.org", "username": "eve", "password1": PASSWORD, "password2": PASSWORD},
    )
    assert not User.objects.filter(username="eve").exists()
