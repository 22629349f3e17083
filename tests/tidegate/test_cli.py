"""The command line against the real console: as a person who signed in, and with a key."""

from __future__ import annotations

import hashlib
import json
import stat
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from tenants.models import AuditExport
from tenants.scoping import all_tenants
from tenants.trail.exports import run_export
from tests.console.api.asking import token_of
from tests.console.conftest import World
from tests.tenants.conftest import last_event
from tests.tidegate.terminal import Terminal
from tidegate.cli import audit, signin


def test_a_session_lies_in_a_file_of_its_owner_alone(operator: Terminal) -> None:
    assert stat.S_IMODE(signin.session_path().stat().st_mode) == 0o600
    assert operator.json("me")[0]["name"] == "operator"
    operator.run("logout")
    assert not signin.session_path().exists()
    operator.run("me", ok=False)


def test_a_wrong_password_signs_nobody_in(world: World, terminal: Terminal) -> None:
    terminal.run("login", "--user", "operator", "--password", "wrong", ok=False)
    assert not signin.session_path().exists()


def test_a_session_is_not_sent_to_another_console(operator: Terminal) -> None:
    assert signin.remembered("http://elsewhere:8000") == {}


def test_an_operator_makes_a_tenant_and_a_key(operator: Terminal) -> None:
    operator.run("tenants", "create", "initech", "Initech", "--requests-per-s", "5")
    shown = operator.run("tenants", "set", "initech", "--requests-per-s", "9", "--dry-run")
    assert "/requests_per_s" in shown and "5.0" in shown and "9.0" in shown
    assert operator.json("tenants", "show", "initech")[0]["requests_per_s"] == 5.0
    operator.run("tenants", "set", "initech", "--time-zone", "Asia/Shanghai")
    made = (
        "keys",
        "create",
        "initech",
        "app",
        "--days",
        "30",
        "--model",
        "minilm",
        "--network",
        "10.0.0.0/8",
    )
    key = operator.json(*made)[0]
    assert key["allowed_networks"] == ["10.0.0.0/8"]
    assert key["token"].startswith("tg_") and key["allowed_models"] == ["minilm"]
    rolled = operator.json("keys", "roll", key["id"], "--overlap-hours", "1")[0]
    assert rolled["token"].startswith("tg_") and rolled["allowed_models"] == ["minilm"]
    assert operator.json("keys", "revoke", rolled["id"])[0]["state"] == "revoked"
    listed = operator.json("keys", "list", "initech")
    assert [(k["name"], k["replaced_by"]) for k in listed] == [("app", None), ("app", rolled["id"])]
    operator.run("tenants", "suspend", "initech", "--reason", "unpaid")
    operator.run("tenants", "resume", "initech")
    assert last_event().action == "tenant.resumed"


def test_an_operator_brings_a_model_up(operator: Terminal, world: World) -> None:
    operator.run("models", "create", "poet", "--description", "Says things", "--tenant", "acme")
    version = operator.json("models", "register", "poet", "--engine", "echo", "--option", "chunks=3")[0]
    assert (version["number"], version["state"], version["options"]["chunks"]) == (1, "validating", 3)
    assert "validating" in operator.run("models", "versions", "poet")
    assert operator.json("models", "set", "poet", "--idle-policy", "by_use")[0]["idle_policy"] == "by_use"
    operator.run("models", "set", "poet", "--idle-policy", "by_luck", ok=False)
    operator.run("deployments", "create", "poet", "1", ok=False)
    operator.run("models", "archive", "poet", "1")
    assert "poet" in operator.run("models", "list")


def test_an_operator_scales_and_stops(operator: Terminal) -> None:
    assert operator.json("deployments", "scale", "minilm", "2")[0]["replicas"] == 2
    assert operator.json("deployments", "switch", "minilm", "1")[0]["version_number"] == 1
    assert operator.json("deployments", "stop", "minilm")[0]["state"] == "stopped"
    assert "stopped" in operator.run("deployments", "list")
    operator.run("deployments", "stop", "minilm", ok=False)


def test_an_uploaded_file_is_checked_like_any_other(operator: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "model.pkl"
    file.write_bytes(b"\x80\x04garbage")
    before = len(operator.json("models", "versions", "minilm"))
    operator.run("models", "register", "minilm", "--engine", "encoder", "--file", str(file), ok=False)
    assert len(operator.json("models", "versions", "minilm")) == before


def test_a_key_reads_usage_and_exports_the_trail_of_its_tenant(
    world: World, terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.STATE_DIR = tmp_path
    monkeypatch.setattr(audit.time, "sleep", lambda _: run_export(left_export(), timezone.now()))
    terminal.key = token_of(world, "usage:read", "audit:export")
    assert terminal.run("usage", "--by", "day,tenant").startswith("day  tenant name  requests")
    assert "key.created" in terminal.run("audit", "events", "--action", "key.created")
    file = tmp_path / "trail.jsonl"
    said = terminal.run("audit", "export", str(file))
    events = [json.loads(line) for line in file.read_text().splitlines()]
    assert f"{len(events)} events in" in said
    assert hashlib.sha256(file.read_bytes()).hexdigest() in said
    terminal.run("tenants", "show", "acme", ok=False)
    terminal.run("audit", "export", str(file), "--tenant", world.cast.other.pk, ok=False)


def left_export() -> str:
    with all_tenants("a test writes what was asked for"):
        return str(AuditExport.objects.get(state="pending").pk)
