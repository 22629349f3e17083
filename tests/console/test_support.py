"""Support looks at everything and changes nothing: every address, opened and posted to."""

from __future__ import annotations

import re

import pytest
from django.urls import reverse

from tenants.models import AuditEvent
from tenants.scoping import all_tenants
from tests.console.conftest import World
from tests.console.test_pages_access import TABLE

READ = {
    "overview", "models", "model", "model_state", "tuning", "tuning_state", "fleet", "fleet_state",
    "tenants", "tenant", "profiles", "profile", "usage", "audit", "playground", "people", "person",
    "organisations", "organisation",
}  # fmt: skip
"""Pages that show the platform."""
OWN = {"switch_tenant", "sessions", "session_end", "sessions_end_others", "playground"}
"""About their own session; the playground asks for a key, and does what that may."""


def _address(world: World, name: str) -> str:
    return reverse(name, args=TABLE[name][0](world))


@pytest.fixture(scope="module")
def table() -> set[str]:
    return set(TABLE) - OWN


def test_every_page_of_the_platform_opens(world: World) -> None:
    client = world.client("support")
    found = {name: client.get(_address(world, name)).status_code for name in READ}
    assert found == dict.fromkeys(READ, 200)


def test_what_changes_something_is_refused_and_leaves_nothing_behind(world: World, table: set[str]) -> None:
    client = world.client("support")
    addresses = {name: _address(world, name) for name in sorted(table)}
    with all_tenants("a test"):
        before = AuditEvent.objects.count()
    found = {name: client.post(address, {}).status_code for name, address in addresses.items()}
    assert {name: status for name, status in found.items() if status not in (403, 405)} == {}
    with all_tenants("a test"):
        assert AuditEvent.objects.filter(outcome="success").count() == before


@pytest.mark.parametrize("name", sorted(READ - {"playground"}))
def test_no_page_offers_support_a_control_that_writes(world: World, name: str) -> None:
    """Links to forms, and forms that post, other than those of their own session."""
    text = world.client("support").get(_address(world, name)).content.decode()
    own = [reverse(n) for n in ("switch_tenant", "set_language", "account_logout", "sessions_end_others")]
    posts = re.findall(r'<form[^>]*method="post"[^>]*action="([^"]*)"', text)
    assert [address for address in posts if address not in own] == []
    writing = re.compile(
        r"/(new|edit|delete|suspend|resume|revoke|role|remove|scale|stop|tune|deploy|bind)\b"
    )
    links = [at for at in re.findall(r'(?:href|hx-get)="(/[^"]*)"', text) if not at.startswith("/accounts/")]
    assert [at for at in links if writing.search(at)] == []
