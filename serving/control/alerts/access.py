"""The gates to alerts. A tenant's people see what concerns the tenant; rules and silences of the platform they do not."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar

from django.db.models import QuerySet

from serving.control.alerts.models import Alert, AlertRule, AlertSilence, AlertTransition
from tenants.access import require
from tenants.actors import Actor
from tenants.errors import NotAllowed, NotFound
from tenants.roles import Right
from tenants.scoping import all_tenants

ALERTS_WHY = "a tenant's alert names the platform's rule it is of"
_GATE = "a gate looks the row up before it can know the tenant"
_Owned = TypeVar("_Owned", AlertRule, AlertSilence)


def visible_rules() -> QuerySet[AlertRule]:
    """Of the scope the code runs in, as all of these. Raises `ScopeError` outside one."""
    return AlertRule.objects.select_related("tenant")


def visible_silences() -> QuerySet[AlertSilence]:
    return AlertSilence.objects.select_related("tenant")


def visible_alerts(tenant_ids: Collection[str] | None) -> QuerySet[Alert]:
    """About these tenants (None: everybody's), each with its rule, which may be the platform's.

    Evaluate it under `all_tenants`: what a tenant may see of such a rule is what the alert says.
    """
    with all_tenants(ALERTS_WHY):
        rows = Alert.objects.select_related("tenant", "rule")
    return rows if tenant_ids is None else rows.filter(tenant_id__in=tenant_ids)


def visible_transitions() -> QuerySet[AlertTransition]:
    return AlertTransition.objects.select_related("tenant")


def access_rule(actor: Actor, rule_id: str, right: Right = Right.VIEW) -> AlertRule:
    """Raises `NotFound` for one the actor does not see, `NotAllowed` without the right where it is."""
    with all_tenants(_GATE):
        return _seen(actor, visible_rules().filter(pk=rule_id).first(), "alert rule", right)


def access_silence(actor: Actor, silence_id: str, right: Right = Right.VIEW) -> AlertSilence:
    with all_tenants(_GATE):
        return _seen(actor, visible_silences().filter(pk=silence_id).first(), "silence", right)


def access_alert(actor: Actor, fingerprint: str, *, to_acknowledge: bool = False) -> Alert:
    """Whoever may change the rule may acknowledge its alerts: it ends what others are told again and again."""
    with all_tenants(_GATE):
        alert = Alert.objects.select_related("tenant", "rule").filter(pk=fingerprint).first()
    if alert is None or not _sees(actor, alert.tenant_id):
        raise NotFound("alert")
    if to_acknowledge and not actor.has(Right.MANAGE_ALERTS, alert.rule.tenant_id):
        raise NotAllowed(
            "Alerts of the platform's rules are acknowledged by its operators."
            if alert.rule.tenant_id is None
            else "This needs the right “manage alerts”.",
            alert.tenant_id,
        )
    return alert


def _seen(actor: Actor, row: _Owned | None, kind: str, right: Right) -> _Owned:
    if row is None or not _sees(actor, row.tenant_id):
        raise NotFound(kind)
    if right is not Right.VIEW:
        require(actor, right, row.tenant_id)
    return row


def _sees(actor: Actor, tenant_id: str | None) -> bool:
    return actor.has(Right.VIEW_PLATFORM) if tenant_id is None else actor.has(Right.VIEW, tenant_id)
