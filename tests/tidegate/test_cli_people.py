"""People and the trail on the command line, against the real console."""

from __future__ import annotations

import pytest
from django.utils import timezone

from tenants.models import AuditVerification
from tenants.scoping import all_tenants
from tenants.trail.verifications import run_verification
from tests.console.api.asking import token_of
from tests.console.conftest import World
from tests.tenants.trail.test_chain import chain_now
from tests.tidegate.terminal import Terminal
from tidegate.cli import audit


def test_somebody_is_invited_by_a_link_that_is_printed_once(operator: Terminal) -> None:
    sent = operator.json("invitations", "send", "acme", "new@example.org", "--role", "viewer")[0]
    assert "/join/" in sent["link"]
    assert operator.json("invitations", "renew", sent["id"])[0]["link"] != sent["link"]
    operator.run("invitations", "withdraw", sent["id"])
    assert "withdrawn" in operator.run("invitations", "list", "acme")


def test_an_organisation_gets_admins_and_tenants(operator: Terminal) -> None:
    made = operator.json("organisations", "create", "Globex", "--max-tenants", "3")[0]
    operator.run("organisations", "add-admin", made["id"], "nobody")
    operator.run("organisations", "move-in", made["id"], "acme")
    assert "acme" in operator.run("organisations", "tenants", made["id"])
    operator.run("organisations", "move-out", made["id"], "acme")
    assert operator.json("organisations", "tenants", made["id"]) == []
    assert "Globex" in operator.run("organisations", "list")


def test_members_come_and_go(operator: Terminal) -> None:
    member = operator.json("members", "add", "acme", "nobody", "--role", "viewer")[0]
    assert "nobody" in operator.run("members", "list", "acme")
    operator.run("members", "remove", member["id"])
    assert "nobody" not in operator.run("members", "list", "acme")


def test_an_operator_looks_after_accounts_and_sessions(operator: Terminal, world: World) -> None:
    person = operator.json("people", "list", "--q", "viewer")[0]
    assert operator.json("people", "switch-off", person["id"])[0]["is_active"] is False
    assert operator.json("people", "switch-on", person["id"])[0]["is_active"] is True
    assert operator.json("people", "end-sessions", person["id"]) == [{"ended": 0}]
    operator.run("people", "reset-factor", person["id"], ok=False)  # there is none
    assert [row["is_this_one"] for row in operator.json("sessions", "list")] == [True]
    assert operator.json("sessions", "end-others") == [{"ended": 0}]


def test_a_trail_is_verified_sent_and_kept(
    world: World, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit.time, "sleep", lambda _: chain_and_verify())
    terminal.key = token_of(world, "audit:export", "manage:write")
    assert terminal.json("audit", "verify")[-1]["broken"] is None
    hook = terminal.json("audit", "webhooks", "create", "https://siem.example.org/")[0]
    assert hook["secret"].startswith("whsec_") and hook["tenant_id"] == world.cast.tenant.pk
    assert terminal.json("audit", "webhooks", "pause", hook["id"])[0]["state"] == "paused"
    terminal.run("audit", "webhooks", "resend", hook["id"], ok=False)  # nothing was given up
    terminal.run("audit", "webhooks", "delete", hook["id"])
    assert terminal.json("audit", "webhooks", "list") == []
    assert terminal.json("audit", "retention", "--months", "12") == [{"months": 12}]
    assert terminal.json("audit", "retention", "--months", "0") == [{"months": None}]
    assert terminal.json("audit", "archives") == []


def chain_and_verify() -> None:
    with all_tenants("a test does what was asked for"):
        asked = AuditVerification.objects.get(state="pending")
    chain_now()
    run_verification(asked.pk, timezone.now())


def test_money_is_told_by_month(world: World, terminal: Terminal) -> None:
    terminal.key = token_of(world, "usage:read", "manage:read")
    assert terminal.run("statement", "acme").startswith("model  version number")
    assert terminal.json("forecast", "--tenant", "acme")[0]["days"] == 0


def test_a_budget_is_set_loosened_and_lifted(operator: Terminal, world: World) -> None:
    made = operator.json(
        *("quotas", "create", "acme", "device_us", "3600000000", "--window", "day", "--warn-percent", "80")
    )[0]
    assert (made["limit"], made["soft_percent"], made["observe_only"]) == (3_600_000_000, 80, False)
    changed = operator.json("quotas", "change", made["id"], "--limit", "7200000000", "--count-only")[0]
    assert (changed["limit"], changed["soft_percent"], changed["observe_only"]) == (7_200_000_000, 80, True)
    assert [row["id"] for row in operator.json("quotas", "list", "acme")] == [made["id"]]
    assert "7200000000" in operator.run("quotas", "standings", "acme")
    operator.run("quotas", "create", "acme", "device_us", "1", "--window", "fortnight", ok=False)
    operator.run("quotas", "delete", made["id"])
    assert operator.json("quotas", "list") == []
