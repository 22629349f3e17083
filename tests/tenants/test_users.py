"""Accounts, and the command that makes the first operator."""

from __future__ import annotations

import io
import threading

import pytest
from django.contrib.auth import authenticate
from django.core.management import CommandError, call_command
from django.db import connection

from tenants.actions.users import change_platform_role, create_user, set_password
from tenants.errors import Conflict, DomainError, Invalid
from tenants.models import User
from tests.tenants.conftest import SYSTEM, Cast, last_event

GOOD = "correct horse battery staple"


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"username": ""}, "username"),
        ({"username": "with space"}, "username"),
        ({"username": "VIEWER"}, "username"),
        ({"email": "not-an-address"}, "email"),
        ({"email": "Viewer@Example.org"}, "email"),
        ({"password": "short"}, "password"),
        ({"password": "newcomer2026!"}, "password"),
        ({"platform_role": "god"}, "platform_role"),
    ],
)
def test_a_wrong_value_is_refused_at_its_field(team: Cast, values: dict[str, str], field: str) -> None:
    with pytest.raises(Invalid) as caught:
        create_user(by=SYSTEM, **{"username": "newcomer", **values})
    assert set(caught.value.errors) == {field}


def test_an_account_without_a_password_cannot_sign_in_until_one_is_set(db: None) -> None:
    user = create_user(by=SYSTEM, username="newcomer")
    assert authenticate(username="newcomer", password="") is None
    set_password(by=SYSTEM, user=user, password=GOOD)
    assert authenticate(username="newcomer", password=GOOD) == user
    assert (last_event().action, last_event().after) == ("user.password_set", None)


def test_the_last_operator_stays(team: Cast) -> None:
    operator = team.users["operator"]
    with pytest.raises(Conflict, match="at least one operator"):
        change_platform_role(by=team.actor("operator"), user=operator, platform_role="")
    change_platform_role(by=SYSTEM, user=team.users["viewer"], platform_role="operator")
    change_platform_role(by=SYSTEM, user=operator, platform_role="")
    operator.refresh_from_db()
    assert operator.platform_role == ""


@pytest.mark.django_db(transaction=True)
def test_two_operators_who_step_down_at_once_leave_one_behind() -> None:
    pair = [create_user(by=SYSTEM, username=name, platform_role="operator") for name in ("one", "two")]
    start = threading.Barrier(2)
    refused: list[DomainError] = []

    def step_down(user: User) -> None:
        try:
            start.wait(timeout=10)
            change_platform_role(by=SYSTEM, user=user, platform_role="")
        except DomainError as error:
            refused.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=step_down, args=(user,)) for user in pair]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)
    assert [type(error) for error in refused] == [Conflict]
    assert User.objects.filter(platform_role="operator").count() == 1


def test_createoperator_generates_a_password_and_shows_it_once(db: None) -> None:
    out = io.StringIO()
    call_command("createoperator", "root", "--email", "root@example.org", stdout=out)
    password = out.getvalue().split("shown once): ")[1].strip()
    user = authenticate(username="root", password=password)
    assert isinstance(user, User) and user.platform_role == "operator"
    again = io.StringIO()
    call_command("createoperator", "root", stdout=again)
    assert "Password" not in again.getvalue()
    assert authenticate(username="root", password=password) == user


def test_createoperator_takes_the_password_from_the_environment(
    db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEGATE_OPERATOR_PASSWORD", GOOD)
    out = io.StringIO()
    call_command("createoperator", "root", stdout=out)
    assert GOOD not in out.getvalue()
    assert authenticate(username="root", password=GOOD)


def test_createoperator_takes_the_password_from_stdin(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{GOOD}\n"))
    call_command("createoperator", "root", "--password-stdin", stdout=io.StringIO())
    assert authenticate(username="root", password=GOOD)


def test_createoperator_says_what_is_wrong(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("short\n"))
    with pytest.raises(CommandError, match="too short"):
        call_command("createoperator", "root", "--password-stdin", stdout=io.StringIO())
    assert not User.objects.exists()
