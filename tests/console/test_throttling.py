"""Guessing passwords: counted by account and by address, in Valkey, for every console process together."""

from __future__ import annotations

import pytest
from django.conf import settings
from django.core.cache import cache
from django.test import Client
from redis import Redis

from tenants.actions.users import create_user
from tenants.models import User
from tests.tenants.conftest import SYSTEM

pytestmark = pytest.mark.django_db
PASSWORD = "correct horse battery staple"


@pytest.fixture(autouse=True)
def ada(db: None) -> User:
    cache.clear()
    return create_user(by=SYSTEM, username="ada", email="ada@example.org", password=PASSWORD)


def attempt(login: str, password: str, ip: str = "203.0.113.9", host: str = "localhost") -> bool:
    client = Client(REMOTE_ADDR=ip)
    client.post("/accounts/login/", {"login": login, "password": password}, HTTP_HOST=host)
    return "_auth_user_id" in client.session


def test_an_account_is_protected_from_guesses_from_many_addresses() -> None:
    for number in range(5):
        assert not attempt("ada", "wrong", ip=f"198.51.100.{number}")
    assert not attempt("ada", PASSWORD, ip="203.0.113.77")


def test_another_spelling_of_the_account_is_no_fresh_start() -> None:
    for login in ("ada", "ADA", "ada@example.org", "Ada@Example.org", "ada"):
        attempt(login, "wrong")
    assert not attempt("ada@example.org", PASSWORD, ip="203.0.113.77")


def test_another_port_in_the_host_header_is_no_fresh_start() -> None:
    for port in range(5):
        attempt("ada", "wrong", host=f"localhost:{8000 + port}")
    assert not attempt("ada", PASSWORD, ip="203.0.113.77", host="localhost:9999")


def test_one_address_cannot_try_many_accounts() -> None:
    for number in range(10):
        attempt(f"somebody-{number}", "wrong")
    assert not attempt("ada", PASSWORD)
    assert attempt("ada", PASSWORD, ip="203.0.113.77")


def test_a_right_password_forgets_nobodys_guesses_and_is_not_counted() -> None:
    for _ in range(3):
        for _ in range(2):
            assert attempt("ada", PASSWORD)
    attempt("ada", "wrong")
    assert attempt("ada", PASSWORD)


def test_the_counters_are_in_valkey_and_end_by_themselves() -> None:
    """So every console process sees the same ones, and an attacker cannot fill memory for ever."""
    attempt("ada", "wrong")
    valkey = Redis.from_url(settings.VALKEY_URL)
    keys = list(valkey.scan_iter("*allauth:rl:allauth.account:login_failed*"))
    assert len(keys) == 2
    assert all(0 < valkey.ttl(key) <= 300 for key in keys)
    valkey.close()
