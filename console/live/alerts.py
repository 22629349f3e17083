"""Alerts on the live socket: a snapshot holds what fires (`alerts`), then each comes that fires or resolves.

← {"type": "alert", "alert": AlertMessage}      within two seconds of its transition
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from console.live.topics import Scope
from serving.control.alerts.models import Alert
from tenants.scoping import all_tenants

MAX_FIRING = 200


class AlertMessage(msgspec.Struct, kw_only=True):
    """Times are Unix seconds."""

    fingerprint: str
    name: str
    summary: str
    severity: str
    state: str
    labels: dict[str, str]
    tenant_id: str | None
    tenant: str | None
    """Its slug."""
    value: float | None
    is_stale: bool
    is_acknowledged: bool
    since: float
    fired_at: float | None
    resolved_at: float | None


_encode = msgspec.json.Encoder().encode


def message_of(alert: Alert) -> AlertMessage:
    """Of a row selected with its rule and tenant."""
    return AlertMessage(
        fingerprint=alert.fingerprint,
        name=alert.rule.name,
        summary=alert.rule.summary,
        severity=alert.rule.severity,
        state=alert.state,
        labels=alert.labels,
        tenant_id=alert.tenant_id,
        tenant=alert.tenant.slug if alert.tenant else None,
        value=alert.value,
        is_stale=alert.is_stale,
        is_acknowledged=alert.is_acknowledged,
        since=alert.since.timestamp(),
        fired_at=alert.fired_at.timestamp() if alert.fired_at else None,
        resolved_at=alert.resolved_at.timestamp() if alert.resolved_at else None,
    )


def messages_of(moved: Iterable[Alert]) -> list[tuple[Scope, str]]:
    """One message for whoever watches everything, one for whoever watches the tenant."""
    out = []
    for alert in moved:
        text = _encode({"type": "alert", "alert": message_of(alert)}).decode()
        out.append((Scope(), text))
        if alert.tenant_id is not None:
            out.append((Scope(alert.tenant_id), text))
    return out


def firing_list(scope: Scope) -> str:
    """What fires now in a scope, as a JSON list; the caller looked whether its person may see that."""
    with all_tenants("a socket shows its scope, which was allowed before"):
        rows = Alert.objects.filter(state="firing").select_related("rule", "tenant")
        if scope.tenant_id is not None:
            rows = rows.filter(tenant_id=scope.tenant_id)
        firing = [message_of(alert) for alert in rows[:MAX_FIRING]]
    return _encode(firing).decode()
