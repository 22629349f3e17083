"""Single sign-on against a provider with real signatures: who gets in, as what, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.core.cache import cache
from django.test import Client

from console.checks import check_single_sign_on
from tenants.models import AuditEvent, Membership, User
from tenants.scoping import all_tenants
from tests.console.conftest import World
from tests.console.oidc_provider import CLIENT, Provider, new_key

ADA = {
    "sub": "7",
    "preferred_username": "ada",
    "email": "ada@example.org",
    "email_verified": True,
    "groups": ["acme-devs"],
}
ROLES = "acme-devs=acme:developer, acme-leads=acme:admin, platform-team=operator, helpdesk=support"


@pytest.fixture
def provider(settings: Any) -> Iterator[Provider]:
    cache.clear()
    made = Provider(says=dict(ADA))
    made.start()
    app = {
        "provider_id": "sso",
        "name": "Example",
        "client_id": CLIENT,
        "secret": "secret",
        "settings": {"server_url": made.url},
    }
    settings.OIDC_ISSUER, settings.OIDC_ROLES, settings.OIDC_NAME = made.url, ROLES, "Example"
    settings.SOCIALACCOUNT_PROVIDERS = {"openid_connect": {"OAUTH_PKCE_ENABLED": True, "APPS": [app]}}
    yield made
    made.stop()


def sign_in(provider: Provider, client: Client | None = None) -> tuple[Client, Any]:
    client = client or Client()
    there = client.get("/accounts/oidc/sso/login/")
    assert there.status_code == 302 and there.url.startswith(f"{provider.url}/authorize")
    return client, client.get(f"/accounts/oidc/sso/login/callback/?{provider.authorize(there.url)}")


def is_in(client: Client) -> bool:
    return client.get("/sessions/").status_code == 200


def role_of(world: World, username: str = "ada") -> str | None:
    with all_tenants("a test"):
        member = Membership.objects.filter(tenant=world.cast.tenant, user__username=username).first()
    return member.role if member else None


def test_the_sign_in_page_offers_it_by_name(world: World, provider: Provider) -> None:
    assert "Sign in with Example" in Client().get("/accounts/login/").content.decode()


def test_a_new_person_gets_an_account_with_the_roles_of_their_groups(
    world: World, provider: Provider
) -> None:
    client, answer = sign_in(provider)
    assert answer.status_code == 302 and is_in(client)
    user = User.objects.get(username="ada")
    assert (user.email, user.has_usable_password(), role_of(world)) == ("ada@example.org", False, "developer")


def test_an_account_of_the_same_proven_address_is_used(world: World, provider: Provider) -> None:
    provider.says |= {"email": "Viewer@example.org", "groups": ["helpdesk"]}
    client, _ = sign_in(provider)
    assert client.get("/people/").status_code == 200
    assert not User.objects.filter(username="ada").exists()


def test_an_address_the_provider_does_not_vouch_for_takes_nobodys_account(
    world: World, provider: Provider
) -> None:
    provider.says |= {"email": "operator@example.org", "email_verified": False}
    client, answer = sign_in(provider)
    assert answer.status_code == 403 and not is_in(client)
    with all_tenants("a test"):
        assert AuditEvent.objects.filter(action="user.sign_in_failed", outcome="failure").count() == 1


def test_the_strongest_of_several_groups_counts(world: World, provider: Provider) -> None:
    provider.says["groups"] = ["acme-leads", "acme-devs", "helpdesk", "platform-team"]
    sign_in(provider)
    assert role_of(world) == "admin"
    assert User.objects.get(username="ada").platform_role == "operator"


def test_what_groups_gave_changes_with_them_at_the_next_sign_in(world: World, provider: Provider) -> None:
    provider.says["groups"] = ["acme-leads", "helpdesk"]
    sign_in(provider)
    provider.says["groups"] = ["acme-devs"]
    sign_in(provider)
    assert role_of(world) == "developer" and User.objects.get(username="ada").platform_role == ""


def test_whoever_lost_every_group_is_refused_and_keeps_nothing_of_them(
    world: World, provider: Provider
) -> None:
    sign_in(provider)
    provider.says["groups"] = []
    client, answer = sign_in(provider)
    assert answer.status_code == 403 and "none of your groups" in answer.content.decode()
    assert not is_in(client) and role_of(world) is None


def test_a_role_that_a_person_gave_is_not_the_groups_to_take(world: World, provider: Provider) -> None:
    provider.says |= {"email": "auditor@example.org", "groups": ["acme-devs"]}
    sign_in(provider)
    assert role_of(world, "auditor") == "auditor"


def test_the_last_operator_stays_one(world: World, provider: Provider) -> None:
    provider.says["groups"] = ["platform-team", "acme-devs"]
    sign_in(provider)
    User.objects.exclude(username="ada").update(platform_role="")
    provider.says["groups"] = ["acme-devs"]
    sign_in(provider)
    assert User.objects.get(username="ada").platform_role == "operator"


def test_a_taken_user_name_gets_a_number(world: World, provider: Provider) -> None:
    provider.says["preferred_username"] = "owner"
    sign_in(provider)
    assert User.objects.get(email="ada@example.org").username == "owner-2"


def test_the_second_factor_is_the_providers(world: World, provider: Provider, settings: Any) -> None:
    settings.OPERATORS_NEED_MFA = True
    provider.says["groups"] = ["platform-team"]
    client, _ = sign_in(provider)
    assert client.get("/people/").status_code == 200


def test_a_switched_off_account_stays_out(world: World, provider: Provider) -> None:
    sign_in(provider)
    User.objects.filter(username="ada").update(is_active=False)
    client, _ = sign_in(provider)
    assert not is_in(client)


@pytest.mark.parametrize(
    "forged",
    [
        {"aud": "somebody-else"},
        {"iss": "https://evil.example"},
        {"exp": 1},
        {"alg": "HS256"},
    ],
    ids=["audience", "issuer", "expired", "algorithm"],
)
def test_a_token_that_is_not_for_us_or_not_now_is_refused(
    world: World, provider: Provider, forged: dict[str, Any]
) -> None:
    provider.token = forged
    client, _ = sign_in(provider)
    assert not is_in(client) and not User.objects.filter(username="ada").exists()


def test_a_token_signed_with_another_key_is_refused(world: World, provider: Provider) -> None:
    provider.key = new_key()
    client, _ = sign_in(provider)
    assert not is_in(client) and not User.objects.filter(username="ada").exists()


def test_user_info_of_another_person_is_refused(world: World, provider: Provider) -> None:
    provider.userinfo = {"sub": "8", "groups": ["platform-team"]}
    client, _ = sign_in(provider)
    assert not is_in(client) and not User.objects.filter(username="ada").exists()


def test_an_answer_nobody_asked_for_is_refused(world: World, provider: Provider) -> None:
    there = Client().get("/accounts/oidc/sso/login/")
    stranger = Client()
    stranger.get(f"/accounts/oidc/sso/login/callback/?{provider.authorize(there.url)}")
    assert not is_in(stranger) and not User.objects.filter(username="ada").exists()


def test_a_provider_that_is_away_is_told_on_a_page(world: World, provider: Provider) -> None:
    there = Client()
    address = there.get("/accounts/oidc/sso/login/").url
    query = provider.authorize(address)
    provider.challenges.clear()  # it has forgotten the code
    answer = there.get(f"/accounts/oidc/sso/login/callback/?{query}")
    assert answer.status_code < 500 and not is_in(there)


def test_a_provider_that_cannot_be_reached_is_told_on_a_page(
    world: World, provider: Provider, settings: Any
) -> None:
    app = settings.SOCIALACCOUNT_PROVIDERS["openid_connect"]["APPS"][0]
    app["settings"] = {"server_url": "http://127.0.0.1:9"}
    answer = Client().get("/accounts/oidc/sso/login/", follow=True)
    assert "Example does not answer" in answer.content.decode()


def test_without_a_provider_there_is_no_such_page_and_no_such_button(world: World) -> None:
    assert Client().get("/accounts/oidc/sso/login/").status_code == 404
    assert "oidc" not in Client().get("/accounts/login/").content.decode()


@pytest.mark.parametrize("address", ["/accounts/3rdparty/", "/accounts/3rdparty/signup/"])
def test_nobody_connects_accounts_by_hand(world: World, provider: Provider, address: str) -> None:
    assert world.client("owner").get(address).status_code == 404


@pytest.mark.parametrize(
    ("issuer", "roles", "ids"),
    [
        ("", "", []),
        ("https://id.example.org", ROLES, []),
        ("http://127.0.0.1:9000", ROLES, []),
        ("http://id.example.org", ROLES, ["tidegate.E007"]),
        ("https://id.example.org", "", ["tidegate.E008"]),
        ("https://id.example.org", "devs=acme:king", ["tidegate.E008"]),
    ],
)
def test_dangerous_settings_are_refused(settings: Any, issuer: str, roles: str, ids: list[str]) -> None:
    settings.OIDC_ISSUER, settings.OIDC_ROLES = issuer, roles
    assert [message.id for message in check_single_sign_on(None)] == ids
