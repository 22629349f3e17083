"""Who asks for what they may not do is in the trail, in the chain of the tenant they looked at."""

from __future__ import annotations

import pytest
from django.core.cache import cache
from django.db import DatabaseError
from django.urls import reverse

from console import denials
from tenants.actions.keys import create_key
from tenants.actions.members import add_member
from tenants.models import AuditEvent
from tenants.scoping import all_tenants
from tests.console.api.asking import ask, token_of, with_key
from tests.console.conftest import World
from tests.tenants.conftest import SYSTEM


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


def test_a_denial_stands_in_the_trail_of_the_tenant_it_was_about(world: World) -> None:
    """Whoever looks at one of their tenants and reaches for another one leaves the trace in the other one."""
    team, client = world.cast, world.client("stranger")
    add_member(by=SYSTEM, tenant=team.tenant, user=team.users["stranger"], role="viewer")
    client.post(reverse("switch_tenant"), {"tenant": team.other.pk})
    assert ask(client, "POST", f"/tenants/{team.tenant.pk}/keys", {"name": "x"}).status_code == 403
    (event,) = denied()
    assert (event.actor_name, event.tenant_id) == ("stranger", team.tenant.pk)


def test_a_refusal_that_a_form_shows_is_an_event(world: World) -> None:
    member = world.cast.members["owner"]
    answer = world.client("admin").post(reverse("member_edit", args=[member.pk]), {"role": "viewer"})
    assert answer.status_code == 422
    (event,) = denied()
    assert (event.actor_name, event.target_id) == ("admin", "member_edit")
    assert (event.tenant_id, event.after) == (world.cast.tenant.pk, {"method": "POST"})


def test_a_key_used_from_elsewhere_is_an_event_of_the_key(world: World) -> None:
    key, token = create_key(
        by=world.cast.actor("owner"),
        tenant=world.cast.tenant,
        name="bound",
        scopes=["manage:read"],
        allowed_networks=["192.0.2.0/24"],
    )
    assert ask(with_key(token), "GET", "/keys").status_code == 403
    (event,) = denied()
    assert (event.actor_type, event.actor_id, event.tenant_id) == ("api_key", key.pk, world.cast.tenant.pk)


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
