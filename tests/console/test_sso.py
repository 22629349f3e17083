"""Single sign-on against a provider with real signatures: who gets in, as what, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount
from django.core.cache import cache
from django.test import Client

from console.checks import check_single_sign_on
from tenants.actions.users import set_active
from tenants.models import AuditEvent, Membership, User
from tenants.scoping import all_tenants
from tests.console.conftest import World
from tests.console.oidc_provider import CLIENT, Provider, new_key
from tests.console.test_second_factor import code_of
from tests.tenants.conftest import SYSTEM

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


def test_an_address_that_looks_alike_in_capitals_takes_nobodys_account(
    world: World, provider: Provider
) -> None:
    provider.says |= {"email": "v\u0131ewer@example.org", "groups": ["platform-team"]}
    sign_in(provider)
    assert User.objects.get(username="viewer").platform_role == ""


def test_the_proof_of_one_address_is_none_of_another(world: World, provider: Provider) -> None:
    provider.token = {"email": "ada@example.org", "email_verified": True}
    provider.says |= {"email": "viewer@example.org", "groups": ["platform-team"]}
    del provider.says["email_verified"]
    sign_in(provider)
    assert User.objects.get(username="viewer").platform_role == ""


@pytest.mark.parametrize("name", ["owner@example.org", "someone@example.com"])
def test_nobody_is_called_like_an_address_that_is_not_theirs(
    world: World, provider: Provider, name: str
) -> None:
    provider.says["preferred_username"] = name
    sign_in(provider)
    assert User.objects.get(email="ada@example.org").username == name.replace("@", "-")


def test_a_link_does_not_choose_what_is_asked_at_the_provider(world: World, provider: Provider) -> None:
    asked = "?auth_params=redirect_uri%3Dhttps://evil.example%26max_age%3D9&scope=admin&process=connect&next=/people/"
    url = world.client("owner").get(f"/accounts/oidc/sso/login/{asked}").url
    assert not any(word in url for word in ("evil", "max_age", "admin"))


def test_nobody_is_connected_to_an_account_by_a_link(world: World, provider: Provider) -> None:
    client = world.client("owner")
    there = client.get("/accounts/oidc/sso/login/?process=connect")
    client.get(f"/accounts/oidc/sso/login/callback/?{provider.authorize(there.url)}")
    assert SocialAccount.objects.get().user.username == "ada"


def test_whoever_has_a_second_factor_here_is_asked_for_it_too(world: World, provider: Provider) -> None:
    sign_in(provider)
    user, secret = User.objects.get(username="ada"), "JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP"
    Authenticator.objects.create(user=user, type="totp", data={"secret": secret})
    client, answer = sign_in(provider)
    assert answer.url == "/accounts/2fa/authenticate/" and not is_in(client)
    client.post("/accounts/2fa/authenticate/", {"code": code_of(secret)})
    assert is_in(client)


def test_an_identity_that_is_somebody_elses_there_does_not_inherit_their_account(
    world: World, provider: Provider
) -> None:
    """An address that was given to the next employee."""
    sign_in(provider)
    provider.says["sub"] = "8"
    client, answer = sign_in(provider)
    assert answer.status_code == 403 and not is_in(client)
    assert "another identity" in answer.content.decode()


def test_an_account_that_is_switched_on_again_forgets_who_it_was_there(
    world: World, provider: Provider
) -> None:
    sign_in(provider)
    ada = User.objects.get(username="ada")
    for is_active in (False, True):
        set_active(by=SYSTEM, user=ada, is_active=is_active)
    provider.says["sub"] = "8"
    client, _ = sign_in(provider)
    assert is_in(client)


def test_it_is_shown_again_at_the_provider_by_whoever_has_no_password(
    world: World, provider: Provider
) -> None:
    provider.says["groups"] = ["platform-team"]
    client, _ = sign_in(provider)
    path = f"/people/{world.cast.users['viewer'].pk}/role"
    assert client.get(path).status_code == 200
    session = client.session
    for record in session["account_authentication_methods"]:
        record["at"] -= 301
    session.save()
    there = client.get(path)
    assert there.status_code == 302
    at = client.get(there.url).url
    assert at.startswith(provider.url) and "prompt=login" in at and "max_age=0" in at
    back = client.get(f"/accounts/oidc/sso/login/callback/?{provider.authorize(at)}")
    assert (back.status_code, back.url) == (302, path)
    assert client.get(path).status_code == 200


@pytest.mark.parametrize("auth_time", [None, 1_000_000])
def test_a_provider_that_only_knew_them_from_before_is_asked_again_and_believed_when_it_says_so(
    world: World, provider: Provider, auth_time: int | None
) -> None:
    provider.says["groups"] = ["platform-team"]
    provider.token["auth_time"] = auth_time
    client, _ = sign_in(provider)
    path = f"/people/{world.cast.users['viewer'].pk}/role"
    there = client.get(path)
    assert there.status_code == 302 and "again=1" in there.url
    back = client.get(f"/accounts/oidc/sso/login/callback/?{provider.authorize(client.get(there.url).url)}")
    assert (back.status_code, back.url) == (302, "/")
    assert client.get(path).status_code == 302
    with all_tenants("a test"):
        assert (
            AuditEvent.objects.filter(reason__contains="does not say that they signed in again").count() == 1
        )
    del provider.token["auth_time"]
    back = client.get(f"/accounts/oidc/sso/login/callback/?{provider.authorize(client.get(there.url).url)}")
    assert (back.status_code, back.url) == (302, path)
    assert client.get(path).status_code == 200
