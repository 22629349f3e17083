"""A tenant's rule, an alert that fires under it, and a silence: for tables of who may do what."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.utils import timezone

from serving.control.alerts import actions as alerting
from serving.control.alerts.channels.actions import create_channel
from serving.control.alerts.channels.models import AlertChannel
from serving.control.alerts.models import Alert, AlertRule, AlertSilence
from tenants.scoping import all_tenants
from tests.console.conftest import World

SLOW = {"type": "threshold", "metric": "total_p95_ms", "comparison": "above", "value": 200}
MATCHERS = [{"label": "model", "value": "a"}]


def alert_rule(world: World) -> list[object]:
    """One of the tenant's own."""
    with all_tenants("a test looks whether it made one"):
        known = AlertRule.objects.filter(tenant=world.cast.tenant).first()
    asked = {"by": world.cast.actor("owner"), "tenant": world.cast.tenant, "name": "slow"}
    return [(known or alerting.create_rule(condition=SLOW, **asked)).pk]


def alert(world: World) -> list[object]:
    (rule_id,), now = alert_rule(world), timezone.now()
    standing = {"tenant": world.cast.tenant, "state": "firing", "since": now, "fired_at": now}
    with all_tenants("the controller writes alerts"):
        row, _ = Alert.objects.get_or_create(
            fingerprint="f" * 16,
            defaults={"rule_id": rule_id, "labels": {"model": "a"}, "state_body": {}, **standing},
        )
    return [row.pk]


def silence(world: World) -> list[object]:
    with all_tenants("a test looks whether it made one"):
        known = AlertSilence.objects.first()
    asked = {"by": world.cast.actor("owner"), "tenant": world.cast.tenant, "comment": "known"}
    return [(known or alerting.create_silence(matchers=MATCHERS, ends_at=tomorrow(), **asked)).pk]


def channel(world: World) -> list[object]:
    """At an address that no name leads to: a test of it is answered without a message."""
    with all_tenants("a test looks whether it made one"):
        known = AlertChannel.objects.first()
    asked = {"by": world.cast.actor("owner"), "tenant": world.cast.tenant, "name": "known", "kind": "webhook"}
    return [(known or create_channel(address="https://receiver.invalid/in", **asked)[0]).pk]


def tomorrow() -> datetime:
    return timezone.now() + timedelta(days=1)
