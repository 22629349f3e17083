"""Rules, silences and acknowledgements: who may, within which bounds, and what is recorded."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from serving.control.alerts import actions
from serving.control.alerts.access import access_alert, access_rule, access_silence, visible_alerts
from serving.control.alerts.models import Alert, AlertRule, AlertSilence
from tenants.actors import Actor
from tenants.errors import Conflict, Invalid, NotAllowed, NotFound
from tenants.models import Tenant
from tenants.roles import Right
from tenants.scoping import all_tenants, tenant_scope
from tenants.staleness import mark_of
from tests.tenants.conftest import Cast, last_event, team

__all__ = ["team"]

pytestmark = pytest.mark.django_db

SLOW = {"type": "threshold", "metric": "total_p95_ms", "comparison": "above", "value": 200.0}
MODEL = [{"label": "model", "value": "encoder"}]


def make(by: Actor, tenant: Tenant | None, **values: Any) -> AlertRule:
    return actions.create_rule(by=by, tenant=tenant, **{"name": "slow", "condition": SLOW, **values})


def silence(by: Actor, tenant: Tenant | None, **values: Any) -> AlertSilence:
    asked = {"matchers": MODEL, "ends_at": timezone.now() + timedelta(hours=1), "comment": "we know"}
    return actions.create_silence(by=by, tenant=tenant, **{**asked, **values})


def fire(rule: AlertRule, tenant: Tenant | None, **values: Any) -> Alert:
    now = timezone.now()
    asked = {
        "fingerprint": "f" * 16,
        "state": "firing",
        "state_body": {"a": 1},
        "since": now,
        "fired_at": now,
    }
    with all_tenants("the controller writes alerts"):
        return Alert.objects.create(rule=rule, tenant=tenant, labels={}, **{**asked, **values})


def test_an_admin_makes_rules_of_the_tenant_and_each_change_is_recorded(team: Cast) -> None:
    admin = team.actor("admin")
    rule = make(admin, team.tenant, group_by=["model"])
    assert rule.by == ["model"]
    made = last_event()
    assert made.action == "alert_rule.created"
    assert made.after is not None
    assert made.after["condition"]["window_s"] == 60
    seen = mark_of(actions.facts_of(rule))
    actions.update_rule(by=admin, rule=rule, is_enabled=False, seen=seen)
    assert (last_event().before, last_event().after) == ({"is_enabled": True}, {"is_enabled": False})
    with pytest.raises(Conflict, match="Somebody else"):
        actions.update_rule(by=admin, rule=rule, is_enabled=True, seen=seen)
    actions.delete_rule(by=admin, rule=rule)
    assert last_event().action == "alert_rule.deleted"
    with pytest.raises(NotFound):
        actions.update_rule(by=admin, rule=rule, name="again")


@pytest.mark.parametrize("who", ["developer", "viewer", "auditor", "support"])
def test_others_look_and_change_nothing(team: Cast, who: str) -> None:
    rule = make(team.actor("owner"), team.tenant)
    assert access_rule(team.actor(who), rule.pk) == rule
    for act in (
        lambda: access_rule(team.actor(who), rule.pk, Right.MANAGE_ALERTS),
        lambda: make(team.actor(who), team.tenant, name="mine"),
        lambda: silence(team.actor(who), team.tenant),
    ):
        with pytest.raises(NotAllowed):
            act()


def test_rules_and_silences_of_the_platform_are_its_operators_and_unseen_by_tenants(team: Cast) -> None:
    rule, hush = make(team.actor("operator"), None), silence(team.actor("operator"), None)
    assert access_rule(team.actor("support"), rule.pk) == rule
    for who in ("owner", "stranger", "nobody"):
        with pytest.raises(NotFound):
            access_rule(team.actor(who), rule.pk)
        with pytest.raises(NotFound):
            access_silence(team.actor(who), hush.pk)
    with pytest.raises(NotAllowed):
        make(team.actor("owner"), None, name="for everybody")


def test_another_tenants_rule_does_not_exist(team: Cast) -> None:
    rule = make(team.actor("owner"), team.tenant)
    with pytest.raises(NotFound):
        access_rule(team.actor("stranger"), rule.pk)
    with tenant_scope(team.other.pk):
        assert not AlertRule.objects.exists()


def test_a_tenant_has_so_many_rules(team: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "MAX_RULES", 1)
    make(team.actor("owner"), team.tenant)
    with pytest.raises(Conflict, match="at most 1 rules"):
        make(team.actor("owner"), team.tenant, name="another")


def test_a_rule_is_not_deleted_while_it_fires(team: Cast) -> None:
    owner = team.actor("owner")
    rule = make(owner, team.tenant)
    fire(rule, team.tenant)
    with pytest.raises(Conflict, match="It fires"):
        actions.delete_rule(by=owner, rule=rule)


def test_an_alert_is_acknowledged_once_and_only_while_it_fires(team: Cast) -> None:
    owner = team.actor("owner")
    alert = fire(make(owner, team.tenant), team.tenant)
    known = access_alert(owner, alert.pk, to_acknowledge=True)
    found = actions.acknowledge(by=owner, alert=known, comment="on it")
    assert (found.acknowledged_by, found.acknowledgement) == (owner.name, "on it")
    assert last_event().action == "alert.acknowledged"
    with pytest.raises(Conflict, match="already"):
        actions.acknowledge(by=owner, alert=known)
    with all_tenants("the controller writes alerts"):
        Alert.objects.update(state="resolved")
    with pytest.raises(Conflict, match="not fire"):
        actions.acknowledge(by=owner, alert=known)


def test_a_tenant_sees_the_alert_of_a_platforms_rule_and_cannot_keep_operators_from_hearing_it(
    team: Cast,
) -> None:
    owner = team.actor("owner")
    alert = fire(make(team.actor("operator"), None), team.tenant)
    assert access_alert(owner, alert.pk).rule.name == "slow"
    with pytest.raises(NotAllowed, match="operators"):
        access_alert(owner, alert.pk, to_acknowledge=True)
    with pytest.raises(NotFound):
        access_alert(team.actor("stranger"), alert.pk)
    with all_tenants("as a list evaluates it"):
        assert [a.rule.name for a in visible_alerts([team.tenant.pk])] == ["slow"]
        assert not visible_alerts([team.other.pk])


def test_a_silence_ends_when_it_says_or_before(team: Cast) -> None:
    admin = team.actor("admin")
    made = silence(admin, team.tenant)
    assert last_event().action == "silence.created"
    ended = actions.end_silence(by=admin, silence=made)
    assert ended.ends_at <= timezone.now()
    assert last_event().action == "silence.ended"
    with pytest.raises(Conflict, match="over already"):
        actions.end_silence(by=admin, silence=made)


def test_a_silence_that_has_not_begun_never_does(team: Cast) -> None:
    begins = timezone.now() + timedelta(days=1)
    made = silence(team.actor("admin"), team.tenant, starts_at=begins, ends_at=begins + timedelta(hours=1))
    ended = actions.end_silence(by=team.actor("admin"), silence=made)
    assert ended.starts_at < ended.ends_at <= timezone.now()


def test_a_silence_is_bounded(team: Cast) -> None:
    admin, now = team.actor("admin"), timezone.now()
    wrong: list[dict[str, Any]] = [
        {"ends_at": now - timedelta(seconds=1)},
        {"ends_at": now + timedelta(days=91)},
        {"starts_at": now + timedelta(days=100), "ends_at": now + timedelta(days=101)},
        {"starts_at": now + timedelta(hours=3)},
        {"matchers": []},
        {"comment": ""},
    ]
    for values in wrong:
        with pytest.raises(Invalid):
            silence(admin, team.tenant, **values)
