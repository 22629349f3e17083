"""Alerts between the engine and the tables, within the caller's transaction and scope of all tenants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from serving.control.alerts import engine, notify
from serving.control.alerts.models import (
    Alert,
    AlertGroup,
    AlertNotification,
    AlertRule,
    AlertTransition,
    plain,
)
from serving.control.alerts.rules import TENANT
from tenants.scoping import all_tenants

_COLUMNS = (
    "rule_id", "tenant_id", "labels", "state", "state_body", "value", "is_stale", "since", "fired_at",
    "resolved_at", "updated_at",
)  # fmt: skip


def alerts_of_all() -> dict[str, dict[str, engine.Alert]]:
    """Rule id → fingerprint → state: what a controller that begins goes on from."""
    out: dict[str, dict[str, engine.Alert]] = {}
    for rule_id, body in Alert.objects.values_list("rule_id", "state_body"):
        alert = msgspec.convert(body, engine.Alert)
        out.setdefault(rule_id, {})[alert.fingerprint] = alert
    return out


def write(rule: AlertRule, step: engine.Step, known_tenants: Iterable[str]) -> None:
    """Keep what an evaluation changed. Writing the same again changes nothing."""
    known = set(known_tenants)
    if step.dropped:
        Alert.objects.filter(fingerprint__in=step.dropped).delete()
    if step.changed:
        Alert.objects.bulk_create(
            [_row(rule, alert, known) for alert in step.changed],
            update_conflicts=True,
            unique_fields=["fingerprint"],
            update_fields=_COLUMNS,
        )
    fired = [move.alert.fingerprint for move in step.transitions if move.alert.state == "firing"]
    if fired:  # what somebody acknowledged was an earlier episode
        Alert.objects.filter(fingerprint__in=fired).update(
            acknowledged_at=None, acknowledged_by="", acknowledgement=""
        )
    AlertTransition.objects.bulk_create(
        [_history(rule, move, known) for move in step.transitions], ignore_conflicts=True
    )


def _row(rule: AlertRule, alert: engine.Alert, known: set[str]) -> Alert:
    return Alert(
        fingerprint=alert.fingerprint,
        rule=rule,
        tenant_id=_tenant_of(rule, alert, known),
        labels=alert.labels,
        state=alert.state,
        state_body=plain(alert),
        value=alert.value,
        is_stale=alert.is_stale,
        since=moment(alert.since),
        fired_at=_or_none(alert.fired_at),
        resolved_at=_or_none(alert.resolved_at),
    )


def _history(rule: AlertRule, move: engine.Transition, known: set[str]) -> AlertTransition:
    alert = move.alert
    return AlertTransition(
        at=moment(move.at),
        state=alert.state,
        fingerprint=alert.fingerprint,
        fired_at=moment(alert.fired_at or move.at),
        rule_id=rule.pk,
        rule_name=rule.name,
        severity=rule.severity,
        tenant_id=_tenant_of(rule, alert, known),
        labels=alert.labels,
        value=alert.value,
        why=alert.why,
    )


def _tenant_of(rule: AlertRule, alert: engine.Alert, known: set[str]) -> str | None:
    """Counts may outlive a tenant, or name one that never was: such an alert is the platform's alone."""
    tenant_id = rule.tenant_id or alert.labels.get(TENANT)
    return tenant_id if tenant_id in known else None


def told_so_far() -> dict[notify.GroupKey, notify.Told]:
    return {group.key: msgspec.convert(group.told, notify.Told) for group in AlertGroup.objects.all()}


def write_round(
    done: notify.Round,
    before: Mapping[notify.GroupKey, notify.Told],
    tenants: Mapping[str, str | None],
) -> list[AlertNotification]:
    """Keep what was told and what is to be sent. `tenants`: route id → whose it is."""
    gone = [key for key in before if key not in done.told]
    for route_id, receiver, group in gone:
        AlertGroup.objects.filter(route_id=route_id, receiver=receiver, group=group).delete()
    AlertGroup.objects.bulk_create(
        [
            AlertGroup(
                route_id=key[0], receiver=key[1], group=key[2], tenant_id=tenants[key[0]], told=plain(told)
            )
            for key, told in done.told.items()
            if before.get(key) != told
        ],
        update_conflicts=True,
        unique_fields=["route", "receiver", "group"],
        update_fields=["told", "tenant_id"],
    )
    return AlertNotification.objects.bulk_create([_outgoing(sent, tenants) for sent in done.notifications])


def _outgoing(sent: notify.Notification, tenants: Mapping[str, str | None]) -> AlertNotification:
    return AlertNotification(
        tenant_id=tenants[sent.route_id],
        route_id=sent.route_id,
        receiver=sent.receiver,
        reason=sent.reason,
        body=plain(sent),
        created_at=moment(sent.at),
    )


def write_quiet(alerts: Sequence[Alert], quiet: Mapping[str, str]) -> None:
    """Mark what is silenced or inhibited now, where that changed."""
    for alert in alerts:
        by = quiet.get(alert.fingerprint, "")
        if alert.quiet_by != by:
            Alert.objects.filter(pk=alert.pk).update(quiet_by=by)


def prune(before: datetime) -> dict[str, int]:
    """Delete history, and what was to be sent, from before a moment; returns how many rows by kind."""
    with all_tenants("history of every tenant has served its time"):
        return {
            "alert_transitions": AlertTransition.objects.filter(at__lt=before).delete()[0],
            "alert_notifications": AlertNotification.objects.filter(created_at__lt=before).delete()[0],
        }


def moment(at_s: float) -> datetime:
    return datetime.fromtimestamp(at_s, UTC)


def _or_none(at_s: float | None) -> datetime | None:
    return None if at_s is None else moment(at_s)
