"""The controller's watch on real tables: what fires is kept, told once, and goes on after a restart."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from serving.control.alerts.defaults import SHIPPED
from serving.control.alerts.install import install_shipped
from serving.control.alerts.models import (
    Alert,
    AlertNotification,
    AlertRoute,
    AlertRule,
    AlertSilence,
    AlertTransition,
)
from serving.control.alerts.sources import Sources
from serving.control.alerts.step import AlertWatch
from serving.control.alerts.store import prune
from serving.telemetry.tally import Tally
from serving.telemetry.windows import Window
from tenants.scoping import all_tenants, tenant_scope
from tests.tenants.conftest import Cast, team

__all__ = ["team"]

T0 = datetime(2026, 12, 1, 3, tzinfo=UTC)


class Seen:
    """The last minute of one tenant, by hand."""

    def __init__(self, tenant_id: str) -> None:
        self.tenant_id, self.failed, self.covered_s = tenant_id, 0, 60.0

    def read(self, window_s: float, now: float, by: tuple[str, ...]) -> list[Window]:
        tally = Tally(answered=100, kept=100, failed={"internal_error": self.failed} if self.failed else {})
        labels = {"tenant_id": self.tenant_id, "model": "minilm"}
        return [Window({name: labels[name] for name in by}, tally, self.covered_s)]


@pytest.fixture
def cast(team: Cast) -> Iterator[Cast]:
    with all_tenants("a test"):
        install_shipped()
        AlertRule.objects.exclude(name="Requests fail").delete()
        yield team


@pytest.fixture
def seen(cast: Cast) -> Seen:
    return Seen(cast.tenant.pk)


def a_watch(seen: Seen) -> AlertWatch:
    return AlertWatch(Sources(seen), budget_s=10)


def run(watch: AlertWatch, first_s: int, last_s: int) -> None:
    for second in range(first_s, last_s, 2):
        watch.step(T0 + timedelta(seconds=second))


def a_route(**values: Any) -> AlertRoute:
    return AlertRoute.objects.create(name="all", receivers=["ach_1"], created_by="test", **values)


def history() -> list[str]:
    return list(AlertTransition.objects.order_by("id").values_list("state", flat=True))


def test_what_fires_is_seen_by_its_tenant_told_once_and_told_to_be_over(cast: Cast, seen: Seen) -> None:
    a_route()
    watch, seen.failed = a_watch(seen), 50
    run(watch, 0, 30)
    with tenant_scope(cast.tenant.pk):
        alert = Alert.objects.get()
    assert (alert.state, alert.labels["model"]) == ("firing", "minilm")
    seen.failed = 0
    run(watch, 30, 400)
    assert history() == ["firing", "resolved"]
    sent = [row.notification() for row in AlertNotification.objects.order_by("created_at")]
    assert [(n.reason, n.receiver, [a.rule_name for a in n.alerts]) for n in sent] == [
        ("fired", "ach_1", ["Requests fail"]),
        ("resolved", "ach_1", ["Requests fail"]),
    ]


def test_a_controller_that_begins_again_every_time_loses_nothing_and_repeats_nothing(seen: Seen) -> None:
    a_route()
    seen.failed = 50
    for second in range(0, 40, 2):
        run(a_watch(seen), second, second + 2)
    assert history() == ["firing"]
    assert AlertNotification.objects.count() == 1


def test_while_no_gateway_reports_nothing_resolves(seen: Seen) -> None:
    watch, seen.failed = a_watch(seen), 50
    run(watch, 0, 20)
    seen.covered_s, seen.failed = 0, 0
    run(watch, 20, 200)
    assert (history(), Alert.objects.get().is_stale) == (["firing"], True)


def test_a_silenced_alert_fires_and_tells_nobody(seen: Seen) -> None:
    a_route()
    matchers = [{"label": "alert", "value": "Requests fail"}]
    AlertSilence.objects.create(
        matchers=matchers, starts_at=T0, ends_at=T0 + timedelta(hours=1), comment="known", created_by="test"
    )
    watch, seen.failed = a_watch(seen), 50
    run(watch, 0, 40)
    assert (history(), AlertNotification.objects.count()) == (["firing"], 0)
    assert Alert.objects.get().quiet_by == AlertSilence.objects.get().pk


def test_a_rule_that_is_switched_off_ends_its_alerts(seen: Seen) -> None:
    watch, seen.failed = a_watch(seen), 50
    run(watch, 0, 20)
    AlertRule.objects.update(is_enabled=False)
    run(watch, 20, 40)
    assert history() == ["firing", "resolved"]
    assert AlertTransition.objects.first().why == "rule_changed"  # type: ignore[union-attr]


def test_shipped_rules_are_installed_once_and_a_deleted_one_stays_away(team: Cast) -> None:
    with all_tenants("a test"):
        assert install_shipped() == len(SHIPPED)
        AlertRule.objects.filter(name="A host is silent").delete()
        AlertRule.objects.filter(name="Requests fail").update(name="Requests fail here")
        assert install_shipped() == 0


def test_old_history_goes_and_what_is_newer_stays(seen: Seen) -> None:
    a_route()
    watch, seen.failed = a_watch(seen), 50
    run(watch, 0, 40)
    assert prune(T0) == {"alert_transitions": 0, "alert_notifications": 0}
    assert prune(T0 + timedelta(days=1)) == {"alert_transitions": 1, "alert_notifications": 1}
