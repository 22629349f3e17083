"""Second factors: kept encrypted, asked of operators where the installation says so, reset by an operator."""

from __future__ import annotations

import re
import threading
import time
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from allauth.mfa.totp.internal.auth import TOTP, format_hotp_value, hotp_value
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.urls import reverse

from console.sessions import actor_of_session
from tenants.actions.users import create_user, reset_second_factor
from tenants.models import AuditEvent, User
from tenants.scoping import all_tenants
from tests.console.conftest import World
from tests.console.conftest import sign_in as fresh
from tests.console.test_pages_access import TABLE
from tests.tenants.conftest import SYSTEM

PASSWORD = "correct horse battery staple"


@pytest.fixture
def asked(settings: Any) -> None:
    settings.OPERATORS_NEED_MFA = True


@pytest.fixture
def root(db: None) -> User:
    cache.clear()
    return create_user(by=SYSTEM, username="root", password=PASSWORD, platform_role="operator")


def code_of(secret: str, step: int = 0) -> str:
    return format_hotp_value(hotp_value(secret, int(time.time()) // 30 + step))


def sign_in(client: Client) -> None:
    client.post("/accounts/login/", {"login": "root", "password": PASSWORD})


def enrol(client: Client) -> str:
    """Through the pages, as a person does; returns the secret of the authenticator app."""
    page = client.get(reverse("mfa_activate_totp"), follow=True)
    if "reauthenticate" in page.request["PATH_INFO"]:
        page = client.post(
            page.request["PATH_INFO"] + "?next=" + reverse("mfa_activate_totp"),
            {"password": PASSWORD},
            follow=True,
        )
    secret = re.search(r'value="([A-Z2-7]{32})"', page.content.decode())
    assert secret is not None
    client.post(reverse("mfa_activate_totp"), {"code": code_of(secret[1])})
    return secret[1]


def test_an_operator_without_one_is_led_to_set_it_up_from_every_page(world: World, asked: None) -> None:
    client = world.client("operator")
    for name, (arguments, method, _) in TABLE.items():
        answer = getattr(client, method)(reverse(name, args=arguments(world)))
        assert (answer.status_code, answer.url) == (302, reverse("mfa_activate_totp")), name


def test_until_then_their_session_has_no_right_anywhere(world: World, asked: None) -> None:
    client = world.client("operator")
    actor = actor_of_session(client.session.session_key)
    assert not actor.platform_rights and not actor.tenant_ids
    run = TABLE["tuning"][0](world)[0]
    assert client.get(f"/api/v1/tunings/{run}").status_code == 404


def test_people_without_a_platform_role_are_not_asked(world: World, asked: None) -> None:
    assert world.client("owner").get("/").status_code == 200


def test_support_is_asked_too(world: World, asked: None) -> None:
    assert world.client("support").get("/").status_code == 302


def test_enrolling_opens_the_console_and_the_next_sign_in_asks_for_a_code(root: User, asked: None) -> None:
    client = Client()
    sign_in(client)
    secret = enrol(client)
    assert client.get("/people/").status_code == 200
    again = Client()
    sign_in(again)
    assert again.get("/people/").status_code == 302
    cache.clear()  # the code of this half minute was used
    again.post(reverse("mfa_authenticate"), {"code": code_of(secret)})
    assert again.get("/people/").status_code == 200


def test_a_recovery_code_works_once(root: User) -> None:
    client = Client()
    sign_in(client)
    enrol(client)
    kit = Authenticator.objects.get(user=root, type="recovery_codes").wrap()
    code = kit.get_unused_codes()[0]
    for expected in (200, 302):
        again = Client()
        sign_in(again)
        again.post(reverse("mfa_authenticate"), {"code": code})
        assert again.get("/people/").status_code == expected


def test_no_secret_of_a_second_factor_is_readable_in_the_database(root: User) -> None:
    client = Client()
    sign_in(client)
    secret = enrol(client)
    stored = str(list(Authenticator.objects.values_list("data", flat=True)))
    assert secret not in stored and stored.count("sealed:") == 2


def test_a_secret_from_before_they_were_encrypted_still_works(root: User) -> None:
    secret = "JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP"
    row = Authenticator.objects.create(user=root, type="totp", data={"secret": secret})
    assert TOTP(row).validate_code(code_of(secret))


def test_an_operator_resets_anothers_and_ends_their_sessions(root: User) -> None:
    client = Client()
    sign_in(client)
    enrol(client)
    other = Client()
    fresh(other, create_user(by=SYSTEM, username="second", platform_role="operator"))
    answer = other.post(f"/people/{root.pk}/second-factor/reset", {"name": "root"})
    assert answer.status_code == 302
    assert not Authenticator.objects.filter(user=root).exists()
    assert client.get("/people/").status_code == 302
    with all_tenants("a test"):
        event = AuditEvent.objects.get(action="user.mfa_reset")
    assert (event.actor_name, event.target_name) == ("second", "root")


def test_there_is_nothing_to_reset_where_there_is_none(root: User) -> None:
    client = Client()
    fresh(client, root)
    answer = client.post(f"/people/{root.pk}/second-factor/reset", {"name": "root"})
    assert answer.status_code == 422 and "no second factor" in answer.content.decode()


def test_guessing_codes_is_slowed_down(root: User) -> None:
    client = Client()
    sign_in(client)
    secret = enrol(client)
    again = Client()
    sign_in(again)
    for _ in range(6):
        again.post(reverse("mfa_authenticate"), {"code": "000000"})
    again.post(reverse("mfa_authenticate"), {"code": code_of(secret)})
    assert again.get("/people/").status_code == 302


def test_what_others_do_about_a_factor_is_in_the_trail(root: User) -> None:
    Authenticator.objects.create(user=root, type="totp", data={"secret": "x"})
    reset_second_factor(by=SYSTEM, user=root)
    with all_tenants("a test"):
        assert AuditEvent.objects.filter(action="user.mfa_reset").count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_recovery_code_used_twice_at_one_moment_opens_one_door() -> None:
    root = create_user(by=SYSTEM, username="racer", password=PASSWORD, platform_role="operator")
    kit = RecoveryCodes.activate(root)
    code, start = kit.get_unused_codes()[0], threading.Barrier(8)
    held = [Authenticator.objects.get(pk=kit.instance.pk) for _ in range(8)]
    opened: list[bool] = []

    def use(row: Authenticator) -> None:
        start.wait(timeout=10)
        opened.append(RecoveryCodes(row).validate_code(code))
        connection.close()

    threads = [threading.Thread(target=use, args=(row,)) for row in held]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert sorted(opened) == [False] * 7 + [True]


@pytest.mark.parametrize(
    "path", ["/accounts/2fa/", "/accounts/password/change/", "/accounts/reauthenticate/"]
)
def test_a_page_of_the_account_has_one_heading_which_is_its_title(root: User, path: str) -> None:
    client = Client()
    sign_in(client)
    page = client.get(path).content.decode()
    [heading] = re.findall(r"<h1[^>]*>\s*(.*?)\s*</h1>", page, re.DOTALL)
    [title] = re.findall(r"<title>\s*(.*?)\s*· Tidegate</title>", page, re.DOTALL)
    assert heading == title != "Account"
