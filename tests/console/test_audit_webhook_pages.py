"""The webhook is set up, watched and repaired on its page; the secret is seen once."""

from __future__ import annotations

from django.urls import reverse
from django.utils import timezone

from tenants.models import AuditDeadLetter, AuditWebhook
from tenants.scoping import all_tenants
from tests.console.conftest import World
from tests.tenants.conftest import last_event

PAGE = reverse("audit_webhook")


def webhook() -> AuditWebhook:
    with all_tenants("a test"):
        return AuditWebhook.objects.get()


def test_an_owner_sets_it_up_and_sees_the_secret_once(world: World) -> None:
    client = world.client("owner")
    assert "Nothing is sent anywhere" in client.get(PAGE).content.decode()
    refused = client.post(reverse("audit_webhook_create"), {"url": "https://169.254.169.254/"})
    assert refused.status_code == 422 and "inside the network" in refused.content.decode()
    shown = client.post(reverse("audit_webhook_create"), {"url": "https://siem.example.org/in"})
    assert "whsec_" in shown.content.decode() and shown.headers["Cache-Control"] == "no-store"
    later = client.get(PAGE).content.decode()
    assert 'data-state="active"' in later and "https://siem.example.org/in" in later
    assert "whsec_" not in later


def test_a_failing_one_is_seen_with_its_dead_letters_which_are_sent_again(world: World) -> None:
    client = world.client("owner")
    client.post(reverse("audit_webhook_create"), {"url": "https://siem.example.org/in"})
    made = webhook()
    now = timezone.now()
    with all_tenants("a test"):
        AuditWebhook.objects.update(failing_since=now, last_error="It answered with status 500.", attempts=2)
        AuditDeadLetter.objects.create(
            webhook_id=made.pk,
            tenant_id=made.tenant_id,
            chain=made.tenant_id,
            position=1,
            event_id="evt_1",
            attempts=8,
            error="It did not answer in time.",
            dead_at=now,
        )
    seen = client.get(PAGE).content.decode()
    assert 'data-state="failing"' in seen and "status 500" in seen and "evt_1" in seen
    address = reverse("audit_webhook_resend", args=[made.pk])
    assert client.post(address, {"letter": "nonsense"}).status_code == 302
    assert client.post(address).status_code == 302
    with all_tenants("a test"):
        assert AuditDeadLetter.objects.get().is_asked_again
    client.post(reverse("audit_webhook_pause", args=[made.pk]))
    assert 'data-state="paused"' in client.get(PAGE).content.decode()


def test_an_auditor_watches_but_changes_nothing(world: World) -> None:
    world.client("owner").post(reverse("audit_webhook_create"), {"url": "https://siem.example.org/in"})
    client = world.client("auditor")
    seen = client.get(PAGE)
    assert (
        seen.status_code == 200
        and reverse("audit_webhook_edit", args=[webhook().pk]) not in seen.content.decode()
    )
    assert client.post(reverse("audit_webhook_pause", args=[webhook().pk])).status_code == 403


def test_it_is_deleted_by_typing_its_address(world: World) -> None:
    client = world.client("owner")
    client.post(reverse("audit_webhook_create"), {"url": "https://siem.example.org/in"})
    address = reverse("audit_webhook_delete", args=[webhook().pk])
    assert client.post(address, {"name": "wrong"}).status_code == 422
    assert client.post(address, {"name": "https://siem.example.org/in"}).status_code == 302
    assert last_event().action == "audit_webhook.deleted"
