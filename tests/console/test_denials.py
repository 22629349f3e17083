"""Who asks for what they may not do is in the trail, in the chain of the tenant they looked at."""

from __future__ import annotations

import pytest
from django.core.cache import cache
from django.db import DatabaseError
from django.urls import reverse

from console import denials
from tenants.models import AuditEvent
from tenants.scoping import all_tenants
from tests.console.api.asking import ask, token_of, with_key
from tests.console.conftest import World


@pytest.fixture(autouse=True)
def _forget_repetitions() -> None:
    cache.clear()


def denied() -> list[AuditEvent]:
    with all_tenants("a test"):
        return list(AuditEvent.objects.filter(action="access.denied").order_by("seq"))


def test_a_refused_page_is_an_event_of_its_tenant(world: World) -> None:
    assert world.client("viewer").get(reverse("tenant_edit", args=["acme"])).status_code == 403
    (event,) = denied()
    assert (event.actor_name, event.outcome, event.tenant_id) == ("viewer", "failure", world.cast.tenant.pk)
    assert (event.target_id, event.target_name) == ("tenant_edit", "/tenants/acme/edit")
    assert event.after == {"method": "GET"}
    assert "edit tenant" in event.reason


def test_a_key_used_outside_its_rights_is_an_event_of_the_key(world: World) -> None:
    client = with_key(token_of(world, "manage:read"))
    assert ask(client, "PATCH", f"/tenants/{world.cast.tenant.pk}", {"name": "x"}).status_code == 403
    (event,) = denied()
    assert (event.actor_type, event.tenant_id) == ("api_key", world.cast.tenant.pk)
    assert event.after == {"method": "PATCH"}


def test_a_repetition_within_a_minute_is_not_written_again(world: World) -> None:
    client = world.client("viewer")
    for _ in range(3):
        client.get(reverse("tenant_edit", args=["acme"]))
    client.get(reverse("member_add", args=["acme"]))
    assert [event.target_id for event in denied()] == ["tenant_edit", "member_add"]


def test_what_is_not_there_and_what_needs_a_sign_in_is_no_denial(world: World) -> None:
    world.client("stranger").get(reverse("tenant_edit", args=["acme"]))
    world.client("anonymous").get(reverse("tenant_edit", args=["acme"]))
    assert denied() == []


def test_a_refusal_stands_also_when_it_cannot_be_written(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: object, **named: object) -> None:
        raise DatabaseError("away")

    monkeypatch.setattr(denials, "_record", fail)
    assert world.client("viewer").get(reverse("tenant_edit", args=["acme"])).status_code == 403
    assert denied() == []
