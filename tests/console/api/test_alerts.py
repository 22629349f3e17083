"""Alerts over the API: rules made and rehearsed, alerts read with what they are measured in, silenced, acknowledged."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.utils import timezone

from serving.control.alerts.actions import create_rule
from serving.control.alerts.models import Alert, AlertRule, AlertTransition
from tenants.scoping import all_tenants
from tests.console.api.asking import ask, pointers
from tests.console.conftest import World
from tests.tenants.conftest import SYSTEM

SLOW: dict[str, Any] = {"type": "threshold", "metric": "total_p95_ms", "comparison": "above", "value": 200}


def body(world: World, **values: Any) -> dict[str, Any]:
    return {"tenant": world.cast.tenant.pk, "name": "slow", "condition": SLOW, **values}


def fire(rule: AlertRule, world: World, fingerprint: str = "a" * 16) -> Alert:
    now = timezone.now()
    labels = {"tenant_id": world.cast.tenant.pk, "model": "encoder"}
    with all_tenants("the controller writes alerts"):
        AlertTransition.objects.create(
            at=now, state="firing", fingerprint=fingerprint, fired_at=now, rule_id=rule.pk,
            rule_name=rule.name, severity=rule.severity, tenant=world.cast.tenant, labels=labels, value=312.5,
        )  # fmt: skip
        return Alert.objects.create(
            fingerprint=fingerprint, rule=rule, tenant=world.cast.tenant, labels=labels, state="firing",
            state_body={}, value=312.5, since=now, fired_at=now,
        )  # fmt: skip


def test_a_rule_is_rehearsed_made_changed_and_deleted(world: World) -> None:
    owner = world.client("owner")
    rehearsed = ask(owner, "POST", "/alert-rules?dry_run=true", body(world))
    assert rehearsed.json()["after"]["condition"]["window_s"] == 60
    assert ask(owner, "GET", "/alert-rules").json()["data"] == []
    made = ask(owner, "POST", "/alert-rules", body(world, group_by=["model"]))
    assert made.status_code == 201
    assert made.json()["group_by"] == ["model"]
    address = made["Location"]
    changed = ask(owner, "PATCH", address, {"condition": {**SLOW, "value": 300}, "for_s": 30})
    assert (changed.json()["condition"]["value"], changed.json()["for_s"]) == (300, 30)
    assert ask(owner, "DELETE", address).status_code == 204
    assert ask(owner, "GET", address).status_code == 404


def test_what_is_wrong_with_a_rule_is_said_by_field(world: World) -> None:
    owner = world.client("owner")
    wrong = ask(owner, "POST", "/alert-rules", body(world, group_by=["colour"], labels={"topic": "sla"}))
    assert wrong.status_code == 422
    assert set(pointers(wrong)) == {"/group_by", "/labels"}
    unknown = {**SLOW, "metric": "happiness"}
    assert pointers(ask(owner, "POST", "/alert-rules", body(world, condition=unknown))) == ["/condition"]
    huge = {**SLOW, "value": 10**400}
    assert pointers(ask(owner, "POST", "/alert-rules", body(world, condition=huge))) == ["/condition"]


def test_a_tenant_reads_its_alert_of_a_platforms_rule_with_unit_and_threshold(world: World) -> None:
    rule = create_rule(by=SYSTEM, tenant=None, name="slow", condition=SLOW, summary="Look at the stages.")
    fire(rule, world)
    owner = world.client("owner")
    (found,) = ask(owner, "GET", "/alerts?state=firing").json()["data"]
    assert (found["rule_name"], found["summary"]) == ("slow", "Look at the stages.")
    assert (found["value"], found["threshold"], found["unit"]) == (312.5, 200, "ms")
    assert ask(owner, "GET", "/alerts?state=resolved").json()["data"] == []
    (told,) = ask(owner, "GET", f"/alert-history?alert={found['id']}").json()["data"]
    assert (told["state"], told["value"]) == ("firing", 312.5)
    for address in ("/alerts", "/alert-history", "/alert-rules"):
        assert ask(world.client("stranger"), "GET", address).json()["data"] == []
    assert ask(owner, "GET", "/alert-rules").json()["data"] == []
    assert ask(owner, "POST", f"/alerts/{found['id']}/acknowledge", {}).status_code == 403


def test_an_alert_is_acknowledged_with_a_word(world: World) -> None:
    owner = world.client("owner")
    made = ask(owner, "POST", "/alert-rules", body(world)).json()
    with all_tenants("a test reads the row"):
        alert = fire(AlertRule.objects.get(pk=made["id"]), world)
    said = ask(owner, "POST", f"/alerts/{alert.pk}/acknowledge", {"comment": "on it"})
    assert (said.json()["acknowledged_by"], said.json()["acknowledgement"]) == ("owner", "on it")
    assert ask(owner, "POST", f"/alerts/{alert.pk}/acknowledge", {}).status_code == 409
    refused = ask(owner, "DELETE", f"/alert-rules/{made['id']}")
    assert refused.status_code == 409
    assert "Switch it off" in refused.json()["detail"]


def test_a_silence_is_made_and_ended(world: World) -> None:
    owner = world.client("owner")
    asked = {
        "tenant": world.cast.tenant.pk,
        "matchers": [{"label": "model", "operator": "=~", "value": "enc.*"}],
        "ends_at": (timezone.now() + timedelta(hours=2)).isoformat(),
        "comment": "we are at it",
    }
    made = ask(owner, "POST", "/silences", asked)
    assert (made.status_code, made.json()["matchers"]) == (201, asked["matchers"])
    assert ask(owner, "POST", f"{made['Location']}/end").status_code == 200
    assert ask(owner, "POST", f"{made['Location']}/end").status_code == 409
    bad = {**asked, "matchers": [{"label": "model", "operator": "=~", "value": "(a+)+"}]}
    assert pointers(ask(owner, "POST", "/silences", bad)) == ["/matchers"]
