"""Who is told what, when, and never twice: groups, silences, inhibition, repeats, in virtual time."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.control.alerts.engine import Alert, fingerprint
from serving.control.alerts.notify import (
    GroupKey,
    Matcher,
    Notification,
    Route,
    Silence,
    Standing,
    Told,
    muted,
    plan,
    standing,
)
from serving.control.alerts.rules import Rule, Severity, Threshold

ROUTE = Route(id="art_1", receivers=("ach_1",), group_wait_s=5, group_interval_s=60, repeat_interval_s=3600)


def a_rule(name: str = "errors", severity: Severity = "warning", topic: str = "errors") -> Rule:
    condition = Threshold("error_share", "above", 0.05)
    return Rule(id=f"alr_{name}", name=name, severity=severity, condition=condition, labels={"topic": topic})


def firing(rule: Rule, model: str = "m", tenant: str = "tnt_a", at: float = 0.0) -> Standing:
    labels = {"tenant_id": tenant, "model": model}
    alert = Alert(
        fingerprint=fingerprint(rule.id, labels),
        labels=labels,
        state="firing",
        since=at,
        fired_at=at,
        true_at=at,
    )
    return standing(rule, alert)


def over(each: Standing, at: float) -> Standing:
    alert = msgspec.structs.replace(each.alert, state="resolved", resolved_at=at)
    return msgspec.structs.replace(each, alert=alert)


@dataclass
class Desk:
    """Plans moment by moment; what was told crosses a restart before each."""

    routes: list[Route] = field(default_factory=lambda: [ROUTE])
    silences: list[Silence] = field(default_factory=list)
    told: dict[GroupKey, Told] = field(default_factory=dict)
    sent: list[Notification] = field(default_factory=list)

    def at(self, now: float, *alerts: Standing) -> list[Notification]:
        quiet = muted(alerts, self.silences, now)
        told = {key: msgspec.json.decode(msgspec.json.encode(t), type=Told) for key, t in self.told.items()}
        of_platform = [silence for silence in self.silences if silence.tenant_id is None]
        done = plan(alerts, told, self.routes, now, quiet, muted(alerts, of_platform, now))
        self.told = done.told
        self.sent += done.notifications
        return done.notifications


def test_alerts_that_fire_together_are_told_together_once() -> None:
    desk, a, b = Desk(), firing(a_rule(), "a"), firing(a_rule(), "b")
    assert desk.at(0, a) == []
    assert desk.at(3, a, b) == []
    (told,) = desk.at(5, a, b)
    assert (told.reason, len(told.alerts), len(told.news)) == ("fired", 2, 2)
    assert [desk.at(now, a, b) for now in range(6, 200)] == [[]] * 194


def test_a_group_that_was_told_waits_before_it_tells_more() -> None:
    desk, a, b = Desk(), firing(a_rule(), "a"), firing(a_rule(), "b", at=10)
    desk.at(0, a)
    desk.at(5, a)
    assert desk.at(64, a, b) == []
    (told,) = desk.at(65, a, b)
    assert [news[0] for news in told.news] == [b.alert.fingerprint]
    assert len(told.alerts) == 2


def test_the_end_of_what_was_told_is_told_once_even_in_silence() -> None:
    desk, a = Desk(), firing(a_rule())
    desk.at(0, a)
    desk.at(5, a)
    desk.silences = [Silence(id="sil", matchers=(), starts_at=10, ends_at=1000)]
    (told,) = desk.at(70, over(a, 60))
    assert told.reason == "resolved"
    assert desk.at(500, over(a, 60)) == []


def test_what_fired_and_resolved_while_its_group_waited_is_told_once() -> None:
    desk, a = Desk(), firing(a_rule())
    desk.at(0, a)
    desk.at(2, over(a, 2))
    (told,) = desk.at(5, over(a, 2))
    assert (told.reason, told.news) == ("resolved", ((a.alert.fingerprint, 0.0, "resolved"),))


def test_a_silenced_alert_is_told_when_the_silence_ends_if_it_still_fires() -> None:
    desk, a = Desk(), firing(a_rule())
    desk.silences = [Silence(id="sil", matchers=(Matcher("model", "m"),), starts_at=0, ends_at=100)]
    assert [desk.at(now, a) for now in range(100)] == [[]] * 100
    desk.at(100, a)
    assert len(desk.at(105, a)) == 1


def test_what_was_over_before_its_silence_ended_is_never_told() -> None:
    desk, a = Desk(), firing(a_rule())
    desk.silences = [Silence(id="sil", matchers=(), starts_at=0, ends_at=100)]
    desk.at(0, a)
    assert [desk.at(now, over(a, 50)) for now in range(50, 300, 10)] == [[]] * 25


def test_a_silence_of_a_tenant_mutes_no_alert_of_another() -> None:
    silence = Silence(id="sil", matchers=(), starts_at=0, ends_at=100, tenant_id="tnt_b")
    a, b = firing(a_rule()), firing(a_rule(), tenant="tnt_b")
    assert muted([a, b], [silence], 1) == {b.alert.fingerprint: "sil"}


def test_a_critical_alert_speaks_for_the_milder_ones_of_its_topic() -> None:
    fast, slow = firing(a_rule("fast", "critical")), firing(a_rule("slow"))
    other = firing(a_rule("queue", topic="queue"))
    assert muted([fast, slow, other], [], 0) == {slow.alert.fingerprint: "inhibited"}
    assert muted([over(fast, 1), slow], [], 1) == {}


def test_what_still_fires_is_told_again_unless_somebody_acknowledged_it() -> None:
    desk, a = Desk(), firing(a_rule())
    desk.at(0, a)
    desk.at(5, a)
    assert [n.reason for n in desk.at(3605, a)] == ["repeated"]
    seen = msgspec.structs.replace(a, is_acknowledged=True)
    assert desk.at(20_000, seen) == []
    assert [n.reason for n in desk.at(20_001, over(seen, 20_001))] == ["resolved"]


def test_a_tenants_route_never_sees_another_tenants_alert() -> None:
    desk = Desk(routes=[msgspec.structs.replace(ROUTE, tenant_id="tnt_b", group_wait_s=0)])
    assert desk.at(0, firing(a_rule())) == []
    assert len(desk.at(1, firing(a_rule(), tenant="tnt_b"))) == 1


def test_every_receiver_of_a_route_is_told() -> None:
    desk = Desk(routes=[msgspec.structs.replace(ROUTE, receivers=("ach_1", "ach_2"), group_wait_s=0)])
    assert {n.receiver for n in desk.at(0, firing(a_rule()))} == {"ach_1", "ach_2"}


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 2), st.booleans(), st.integers(1, 40)), max_size=60))
def test_nothing_is_told_twice_and_in_the_end_everybody_knows_how_things_are(
    happened: list[tuple[int, bool, int]],
) -> None:
    desk, now, alerts = Desk(), 0.0, dict[int, Standing]()
    for which, is_on, gap_s in happened:
        now += gap_s
        held = alerts.get(which)
        if is_on and (held is None or held.alert.state == "resolved"):
            alerts[which] = firing(a_rule(), f"m{which}", at=now)
        elif not is_on and held is not None and held.alert.state == "firing":
            alerts[which] = over(held, now)
        desk.at(now, *alerts.values())
    for after_s in range(0, 200, 5):
        desk.at(now + after_s, *alerts.values())
    news = [each for sent in desk.sent for each in sent.news]
    assert len(news) == len(set(news))
    last = {print_: state for print_, _, state in news}
    assert last == {each.alert.fingerprint: each.alert.state for each in alerts.values()}


def test_a_tenants_silence_keeps_its_own_routes_quiet_and_not_the_platforms() -> None:
    matchers = (Matcher("model", "m"),)
    hush = Silence(id="sil_1", matchers=matchers, starts_at=0, ends_at=1_000, tenant_id="tnt_a")
    own = msgspec.structs.replace(ROUTE, id="art_2", tenant_id="tnt_a")
    desk = Desk(routes=[ROUTE, own], silences=[hush])
    for now in (0.0, 10.0):
        desk.at(now, firing(a_rule()))
    assert [sent.route_id for sent in desk.sent] == ["art_1"]


def test_a_tenants_rule_speaks_for_the_tenants_own_alone() -> None:
    theirs = msgspec.structs.replace(a_rule("fast", "critical"), tenant_id="tnt_a")
    also = msgspec.structs.replace(a_rule("slow"), tenant_id="tnt_a")
    ours, own = firing(a_rule("errors")), firing(also)
    assert muted([firing(theirs), ours, own], [], 0) == {own.alert.fingerprint: "inhibited"}


def test_alerts_without_a_topic_speak_for_nobody() -> None:
    fast, slow = (
        msgspec.structs.replace(a_rule(name, severity), labels={})
        for name, severity in (("fast", "critical"), ("slow", "warning"))
    )
    assert muted([firing(fast), firing(slow)], [], 0) == {}
