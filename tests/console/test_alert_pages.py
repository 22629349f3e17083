"""The alerts pages: what fires is acknowledged and silenced where it stands, and rules are made and changed."""

from __future__ import annotations

import pytest
from django.urls import reverse

from console.pages.alerts import matcher_of
from console.templatetags.figures import measured
from serving.control.alerts.models import Alert, AlertRule, AlertSilence
from tenants.errors import Invalid
from tenants.scoping import all_tenants
from tests.console.alerting import alert, alert_rule
from tests.console.conftest import World


def text(world: World, who: str, name: str, *args: object) -> str:
    return world.client(who).get(reverse(name, args=args)).content.decode()


def test_what_fires_stands_there_with_its_tenant_and_model_for_those_it_concerns(world: World) -> None:
    alert(world)
    for who in ("operator", "owner", "viewer"):
        assert "slow" in text(world, who, "alerts")
    assert "slow" not in text(world, "stranger", "alerts")
    assert "Acknowledge" in text(world, "owner", "alerts")
    assert "Acknowledge" not in text(world, "viewer", "alerts")


def test_an_alert_is_acknowledged_with_a_comment_and_others_see_who_looks(world: World) -> None:
    (fingerprint,) = alert(world)
    answer = world.client("owner").post(
        reverse("alert_acknowledge", args=[fingerprint]), {"comment": "the disk is full"}
    )
    assert answer.status_code == 302
    shown = text(world, "viewer", "alerts")
    assert "the disk is full" in shown and "nobody yet" not in shown


def test_a_silence_is_filled_in_with_what_tells_the_alert_apart(world: World) -> None:
    (fingerprint,) = alert(world)
    assert "alert=slow\nmodel=a" in text(world, "owner", "alert_silence", fingerprint)
    client = world.client("owner")
    given = {"matchers": "alert=slow\nmodel=~a|b", "hours": "4", "comment": "known work"}
    assert client.post(reverse("alert_silence", args=[fingerprint]), given).status_code == 302
    with all_tenants("a test"):
        (row,) = AlertSilence.objects.all()
    assert row.tenant_id == world.cast.tenant.pk
    assert [each["operator"] for each in row.matchers] == ["=", "=~"]
    assert "known work" in text(world, "owner", "silences")
    assert client.post(reverse("silence_end", args=[row.pk])).status_code == 302
    assert "End now" not in text(world, "owner", "silences")


@pytest.mark.parametrize("line", ["model", "=a", "", "model a"])
def test_what_is_no_matcher_is_said_at_the_field(world: World, line: str) -> None:
    if "=" not in line:
        with pytest.raises(Invalid):
            matcher_of(line)
    given = {"matchers": line, "hours": "4", "comment": "x"}
    assert world.client("operator").post(reverse("silence_create"), given).status_code == 422


def test_a_rule_is_made_changed_switched_off_and_deleted(world: World) -> None:
    client = world.client("owner")
    given = {
        "name": "late", "metric": "total_p95_ms", "comparison": "above", "value": "200", "window_s": "60",
        "min_requests": "20", "for_s": "30", "keep_firing_s": "60", "severity": "critical", "summary": "",
    }  # fmt: skip
    assert client.post(reverse("alert_rule_create"), given).status_code == 302
    with all_tenants("a test"):
        rule = AlertRule.objects.get(name="late")
    assert (rule.tenant_id, rule.by, rule.condition["value"]) == (
        world.cast.tenant.pk,
        ["tenant_id", "model"],
        200,
    )
    address = reverse("alert_rule_edit", args=[rule.pk])
    assert client.post(address, given | {"value": "300"}).status_code == 302
    assert client.post(reverse("alert_rule_switch", args=[rule.pk]), {"to": "off"}).status_code == 302
    with all_tenants("a test"):
        rule = AlertRule.objects.get(name="late")
    assert (rule.is_enabled, rule.condition["value"]) == (False, 300)
    assert client.post(reverse("alert_rule_delete", args=[rule.pk]), {"name": "late"}).status_code == 302
    with all_tenants("a test"):
        assert not AlertRule.objects.filter(name="late").exists()


def test_a_refused_rule_says_why_at_its_field(world: World) -> None:
    given = {"name": "x", "metric": "total_p95_ms", "comparison": "above", "value": "1", "window_s": "1"}
    answer = world.client("owner").post(reverse("alert_rule_create"), given)
    assert answer.status_code == 422


def test_a_rule_may_name_facts_of_whose_it_is(world: World) -> None:
    assert "host_silent_s" in text(world, "operator", "alert_rule_create")
    shown = text(world, "owner", "alert_rule_create")
    assert "budget_used_share" in shown and "host_silent_s" not in shown


def test_history_outlives_the_rule_and_names_no_strangers(world: World) -> None:
    alert_rule(world)
    with all_tenants("a test"):
        assert not Alert.objects.exists()
    assert "Nothing fired yet" in text(world, "owner", "alert_history")


def test_values_are_written_in_their_units() -> None:
    written = [
        measured(value, unit)
        for value, unit in (
            (0.05, "share"), (12, "ms"), (30, "s"), (60, "s"), (1_209_600, "s"), (3, "restarts"), (6, "times"),
            (None, "ms"),
        )
    ]  # fmt: skip
    assert [str(one).replace("\u202f", " ") for one in written] == [
        "5.0 %", "12.0 ms", "30 s", "1 min", "14 d", "3", "6.00 ×", "–",
    ]  # fmt: skip
