"""The audit trail over the API: where it is sent, how long it stays, how it is proven; and what a month costs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from serving.contract import UsageRow
from serving.control.quotas.actions import create_quota
from serving.control.quotas.models import Quota
from tenants.models import AuditDeadLetter
from tenants.scoping import all_tenants
from tenants.trail.verifications import run_verification
from tenants.usage import record_usage
from tests.console.api.asking import ask, pointers, token_of, with_key
from tests.console.conftest import World
from tests.tenants.conftest import SYSTEM, last_event
from tests.tenants.trail.test_chain import chain_now

RECEIVER = "https://siem.example.org/"
NOW = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)


def webhook(world: World, who: str = "owner") -> dict[str, object]:
    body = {"tenant": world.cast.tenant.pk, "url": RECEIVER}
    made: dict[str, object] = ask(world.client(who), "POST", "/audit-webhooks", body).json()
    return made


def use(world: World, days_ago: int = 0) -> None:
    row = UsageRow(
        minute=int((NOW - timedelta(days=days_ago)).timestamp()),
        tenant_id=world.cast.tenant.pk,
        key_id=world.key.pk,
        model="minilm",
        version_id=world.version.pk,
        sla_class="interactive",
        requests=10,
        device_us=1_000_000,
        cost_micro=2_000_000,
    )
    record_usage("tests", [row])


def test_a_webhooks_secret_is_shown_once(world: World) -> None:
    made = webhook(world)
    assert str(made["secret"]).startswith("whsec_")
    client, address = world.client("owner"), f"/audit-webhooks/{made['id']}"
    assert "secret" not in ask(client, "GET", address).json()
    rolled = ask(client, "POST", f"{address}/roll", {"overlap_s": 60}).json()
    assert rolled["secret"] not in (None, made["secret"])


def test_each_trail_has_one_webhook_and_no_address_inside(world: World) -> None:
    client, body = world.client("owner"), {"tenant": world.cast.tenant.pk, "url": "http://127.0.0.1:1/"}
    assert pointers(ask(client, "POST", "/audit-webhooks", body)) == ["/url"]
    webhook(world)
    assert ask(client, "POST", "/audit-webhooks", {**body, "url": RECEIVER}).status_code == 409


def test_a_webhook_pauses_goes_on_and_is_deleted(world: World) -> None:
    client, address = world.client("owner"), f"/audit-webhooks/{webhook(world)['id']}"
    assert ask(client, "POST", f"{address}/pause").json()["state"] == "paused"
    assert ask(client, "POST", f"{address}/pause").status_code == 409
    assert ask(client, "POST", f"{address}/resume").json()["state"] == "active"
    assert ask(client, "DELETE", address).status_code == 204
    assert ask(client, "GET", address).status_code == 404


def test_an_auditor_reads_it_and_changes_nothing(world: World) -> None:
    address = f"/audit-webhooks/{webhook(world)['id']}"
    auditor = world.client("auditor")
    assert ask(auditor, "GET", f"{address}/deliveries").json()["data"] == []
    assert ask(auditor, "POST", f"{address}/pause").status_code == 403
    key = with_key(token_of(world, "audit:export"))
    assert (ask(key, "GET", address).status_code, ask(key, "DELETE", address).status_code) == (200, 403)


def test_what_was_given_up_is_sent_again(world: World) -> None:
    made, client = webhook(world), world.client("owner")
    tenant_id = world.cast.tenant.pk
    with all_tenants("a test"):
        letter = AuditDeadLetter.objects.create(
            webhook_id=str(made["id"]),
            tenant_id=tenant_id,
            chain=tenant_id,
            position=1,
            event_id="evt_1",
            attempts=9,
            error="HTTP 500",
            dead_at=NOW,
        )
    address = f"/audit-webhooks/{made['id']}"
    assert ask(client, "GET", f"{address}/dead-letters").json()["data"][0]["error"] == "HTTP 500"
    assert ask(client, "POST", f"{address}/resend", {"letter": letter.pk}).json() == {"events": 1}
    assert ask(client, "POST", f"{address}/resend", {}).status_code == 409


def test_a_trail_is_verified_and_says_how_long_it_is(world: World) -> None:
    client, tenant_id = with_key(token_of(world, "audit:export")), world.cast.tenant.pk
    asked = ask(client, "POST", "/audit-verifications", {"tenant": tenant_id}).json()
    assert (asked["state"], asked["broken"]) == ("pending", None)
    assert ask(client, "POST", "/audit-verifications", {"tenant": tenant_id}).status_code == 409
    chain_now()
    run_verification(asked["id"], timezone.now())
    found = ask(client, "GET", f"/audit-verifications/{asked['id']}").json()
    trail = ask(client, "GET", f"/audit-trail?tenant={tenant_id}").json()
    assert (found["state"], found["broken"]) == ("done", None)
    assert found["rows"] == trail["position"] > 0
    assert len(trail["hash"]) == 64


def test_retention_is_rehearsed_then_set_and_refuses_what_changed_meanwhile(world: World) -> None:
    client, address = world.client("owner"), f"/audit-retention?tenant={world.cast.tenant.pk}"
    tag = ask(client, "GET", address)["ETag"]
    tried = ask(client, "PUT", f"{address}&dry_run=true", {"months": 12}).json()
    assert tried["changes"] == [{"pointer": "/months", "before": None, "after": 12}]
    assert ask(client, "GET", address).json()["months"] is None
    assert ask(client, "PUT", address, {"months": 12}, If_Match=tag).json()["months"] == 12
    assert last_event().action == "audit.retention_changed"
    assert ask(client, "PUT", address, {"months": 6}, If_Match=tag).status_code == 412


def test_a_statement_tells_what_the_ledger_holds(world: World) -> None:
    use(world)
    client = with_key(token_of(world, "usage:read"))
    address = f"/tenants/{world.cast.tenant.pk}/statement"
    found = ask(client, "GET", f"{address}?month={NOW:%Y-%m}").json()
    assert found["total"]["cost_micro"] == found["lines"][0]["cost_micro"] == 2_000_000
    assert (found["lines"][0]["version_number"], found["is_running"]) == (1, True)
    assert found["keys"][0]["key_name"] == "support chat"


@pytest.mark.parametrize("month", ["2001-01", "2026-13", "soon"])
def test_a_month_without_a_statement_is_refused(world: World, month: str) -> None:
    address = f"/tenants/{world.cast.tenant.pk}/statement?month={month}"
    assert pointers(ask(world.client("owner"), "GET", address)) == ["/month"]


def test_a_forecast_counts_what_one_may_read(world: World) -> None:
    use(world, days_ago=1)
    owner, stranger = (
        ask(world.client(who), "GET", "/usage/forecast").json() for who in ("owner", "stranger")
    )
    assert (owner["days"], owner["cost_per_day_micro"]) == (1, 2_000_000)
    assert (stranger["days"], stranger["cost_at_month_end_micro"]) == (0, None)
    other = ask(world.client("stranger"), "GET", f"/usage/forecast?tenant={world.cast.tenant.pk}").json()
    assert other["cost_so_far_micro"] == 0


def test_a_budget_says_what_is_left_and_when_it_begins_anew(world: World) -> None:
    tenant = world.cast.tenant
    quota = create_quota(by=SYSTEM, tenant=tenant, resource="requests", window="day", limit=9)
    with all_tenants("a new budget is not known at once"):
        Quota.objects.filter(pk=quota.pk).update(created_at=timezone.now() - timedelta(hours=1))
    client = world.client("viewer")
    one = ask(client, "GET", f"/quotas/{quota.pk}/standing").json()
    assert (one["limit"], one["used"], one["remaining"]) == (9, 0, 9)
    assert one["resets_at"].endswith("Z")
    assert ask(client, "GET", f"/tenants/{tenant.pk}/quota-standings").json()["data"] == [one]


def test_what_cannot_be_read_is_not_told_as_nothing(world: World, settings: Any) -> None:
    quota = create_quota(by=SYSTEM, tenant=world.cast.tenant, resource="requests", window="day", limit=9)
    settings.VALKEY_URL = "redis://127.0.0.1:1/0"
    one = ask(world.client("viewer"), "GET", f"/quotas/{quota.pk}/standing").json()
    assert (one["used"], one["remaining"]) == (None, None)
