"""Lists ask the database as often for many rows as for few."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from serving.control.catalog.actions import create_model, register_version
from serving.control.fleet.models import Deployment, Host, Replica
from serving.control.profiles.actions import bind_profile, create_profile
from serving.control.quotas.actions import create_quota
from tenants.actions.keys import create_key
from tenants.actions.organisations import create_organisation
from tenants.actions.tenants import create_tenant
from tenants.actions.users import create_user
from tests.console.conftest import World
from tests.tenants.conftest import SYSTEM
from tests.tenants.trail.test_chain import chain_now

MOST = 10
LISTS = (
    "overview",
    "models",
    "fleet",
    "tenants",
    "people",
    "organisations",
    "sessions",
    "profiles",
    "quotas",
    "prices",
    "usage",
    "promises",
    "audit",
    "playground",
)
GROUPS = ("day", "tenant", "key", "model", "version", "class")


def asked(client: Client, address: str) -> int:
    with CaptureQueriesContext(
        connection,
    ) as queries:
        assert client.get(address).status_code == 200
    return len(queries)


@pytest.mark.parametrize("name", LISTS)
def test_a_longer_list_costs_no_more_queries(world: World, name: str) -> None:
    client = world.client("operator")
    create_organisation(by=SYSTEM, name="the first organisation")  # an empty list asks for less
    create_quota(by=SYSTEM, tenant=world.cast.tenant, resource="concurrency", limit=5)
    client.get(reverse(name))
    before = asked(client, reverse(name))
    _more(world)
    assert asked(client, reverse(name)) == before <= MOST


@pytest.mark.parametrize("name", LISTS)
def test_a_list_for_a_tenants_own_people_costs_few_queries(world: World, name: str) -> None:
    chain_now()  # as the events would be behind a commit
    client, address = world.client("owner"), f"{reverse(name)}?q=a"
    if client.get(address).status_code == 200:
        assert asked(client, address) <= MOST


@pytest.mark.parametrize("group", GROUPS)
def test_usage_costs_few_queries_however_it_is_grouped(world: World, group: str) -> None:
    client = world.client("operator")
    client.get(reverse("usage"))
    assert asked(client, f"{reverse('usage')}?days=last-month&by={group}") <= MOST


def test_a_tenants_page_costs_no_more_queries_for_more_keys_and_models(world: World) -> None:
    client = world.client("operator")
    address = reverse("tenant", args=["acme"])
    client.get(address)
    before = asked(client, address)
    _more(world)
    assert asked(client, address) == before <= MOST + 1  # one thing with six lists


def test_a_statement_and_the_tenants_page_cost_an_owner_few_queries(world: World) -> None:
    client = world.client("owner")
    for name in ("statement", "tenant"):
        address = reverse(name, args=["acme"])
        client.get(address)
        assert asked(client, address) <= MOST


def _more(world: World) -> None:
    host = Host.objects.get()
    for number in range(5):
        tenant = create_tenant(by=SYSTEM, slug=f"team-{number}", name=f"Team {number}")
        create_organisation(by=SYSTEM, name=f"organisation {number}")
        create_user(by=SYSTEM, username=f"person-{number}")
        create_key(by=SYSTEM, tenant=world.cast.tenant, name=f"key {number}")
        create_quota(by=SYSTEM, tenant=tenant, resource="concurrency", limit=5)
        model = create_model(by=SYSTEM, name=f"model-{number}")
        version = register_version(by=SYSTEM, model=model, source=None, engine="echo")
        deployment = Deployment.objects.create(model=model, version=version, created_by="tests")
        Replica.objects.create(
            deployment=deployment, version=version, host=host, slot=number, device="cpu", address="unix:/r"
        )
        profile = create_profile(by=SYSTEM, name=f"profile {number}")
        bind_profile(by=SYSTEM, profile=profile, tenant=tenant, model=model)
