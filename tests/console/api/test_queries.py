"""What a list costs the database: a few statements, the same for many rows as for few."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from serving.control.catalog.actions import create_model, grant_model, register_version, set_alias
from serving.control.catalog.models import Version
from serving.control.fleet.models import Deployment, Host, Replica
from serving.control.pricing.actions import set_price
from serving.control.profiles.actions import bind_profile, create_profile
from serving.control.quotas.actions import create_quota
from tenants.actions.invitations import invite
from tenants.actions.keys import create_key
from tenants.actions.members import add_member
from tenants.actions.organisations import create_organisation
from tenants.actions.tenants import create_tenant
from tenants.actions.users import create_user
from tenants.trail.verifications import request_verification
from tenants.trail.webhooks.actions import create_webhook
from tests.console.api.asking import ask, token_of, with_key
from tests.console.conftest import World
from tests.console.tuned import build_encoder, build_run
from tests.tenants.conftest import SYSTEM

MOST = 10
ADDRESSES: dict[str, Callable[[World], str]] = {
    "tenants": lambda world: "/tenants",
    "members": lambda world: f"/tenants/{world.cast.tenant.pk}/members",
    "accounts": lambda world: "/accounts",
    "invitations": lambda world: f"/tenants/{world.cast.tenant.pk}/invitations",
    "organisations": lambda world: "/organisations",
    "memberships": lambda world: f"/accounts/{world.cast.users['viewer'].pk}/memberships",
    "keys": lambda world: "/keys",
    "tenant_keys": lambda world: f"/tenants/{world.cast.tenant.pk}/keys",
    "models": lambda world: "/models",
    "versions": lambda world: f"/models/{world.model.pk}/versions",
    "grants": lambda world: f"/models/{world.model.pk}/grants",
    "aliases": lambda world: f"/models/{world.model.pk}/aliases",
    "deployments": lambda world: "/deployments",
    "profiles": lambda world: "/profiles",
    "bindings": lambda world: "/bindings",
    "quotas": lambda world: "/quotas",
    "prices": lambda world: "/prices",
    "usage": lambda world: "/usage?group_by=day,tenant,key",
    "audit": lambda world: "/audit",
    "standings": lambda world: f"/tenants/{world.cast.tenant.pk}/quota-standings",
    "archives": lambda world: "/audit-archives",
    "webhooks": lambda world: "/audit-webhooks",
    "verifications": lambda world: "/audit-verifications",
    "hosts": lambda world: "/hosts",
    "replicas": lambda world: "/replicas",
}
READ_BY_KEYS = ("tenants", "members", "keys", "models", "versions", "profiles", "bindings")


def asked(client: Client, address: str) -> tuple[int, int]:
    """Statements, and rows of the answer."""
    with CaptureQueriesContext(connection) as statements:
        answer = ask(client, "GET", address)
    assert answer.status_code == 200, answer.content
    return len(statements), len(answer.json()["data"])


@pytest.mark.parametrize("name", ADDRESSES)
def test_a_longer_list_costs_no_more(world: World, name: str) -> None:
    client, address = world.client("operator"), ADDRESSES[name](world)
    ask(client, "GET", address)
    before, few = asked(client, address)
    _more(world)
    after, many = asked(client, address)
    assert after <= before <= MOST
    assert many > few or name in ("usage", "hosts", "archives")


def test_more_tuning_runs_cost_no_more(world: World) -> None:
    client, version = world.client("operator"), build_encoder(world.model)
    build_run(version, is_done=True)
    before, _ = asked(client, f"/versions/{version.pk}/tunings")
    build_run(version, is_done=True)
    assert asked(client, f"/versions/{version.pk}/tunings") == (before, 2)
    assert before <= MOST


@pytest.mark.parametrize("name", READ_BY_KEYS)
def test_a_key_costs_no_more_than_a_person(world: World, name: str) -> None:
    client = with_key(token_of(world, "manage:read"))
    assert asked(client, ADDRESSES[name](world))[0] <= MOST


def _more(world: World) -> None:
    host = Host.objects.get()
    for number in range(4):
        tenant = create_tenant(by=SYSTEM, slug=f"team-{number}", name=f"Team {number}")
        key, _ = create_key(by=SYSTEM, tenant=world.cast.tenant, name=f"key {number}")
        user = create_user(by=SYSTEM, username=f"person-{number}")
        add_member(by=SYSTEM, tenant=world.cast.tenant, user=user, role="viewer")
        add_member(by=SYSTEM, tenant=tenant, user=world.cast.users["viewer"], role="viewer")
        asked = {"email": f"person-{number}@example.org", "role": "viewer"}
        invite(by=world.cast.actor("owner"), tenant=world.cast.tenant, **asked)
        create_organisation(by=SYSTEM, name=f"group {number}")
        _more_models(world, host, number)
        create_quota(by=SYSTEM, tenant=tenant, resource="concurrency", limit=5)
        create_quota(by=SYSTEM, tenant=world.cast.tenant, key=key, resource="concurrency", limit=5)
        create_webhook(by=SYSTEM, tenant=tenant, url="https://siem.example.org/")
        request_verification(by=SYSTEM, tenant=tenant)
        set_price(by=SYSTEM, device_class=f"class-{number}")
        grant_model(by=SYSTEM, model=world.model, tenant=tenant)
        profile = create_profile(by=SYSTEM, name=f"profile {number}")
        bind_profile(by=SYSTEM, profile=profile, tenant=tenant, model=world.model)


def _more_models(world: World, host: Host, number: int) -> None:
    model = create_model(by=SYSTEM, name=f"model-{number}")
    version = register_version(by=SYSTEM, model=model, source=None, engine="echo")
    register_version(by=SYSTEM, model=world.model, source=None, engine="echo")
    Version.objects.filter(pk=version.pk).update(fallback_version=world.version)
    set_alias(by=SYSTEM, model=world.model, alias=f"alias-{number}", version=world.version)
    deployment = Deployment.objects.create(model=model, version=version, created_by="tests")
    Replica.objects.create(
        deployment=deployment, version=version, host=host, slot=number, device="cpu", address="unix:/r"
    )
