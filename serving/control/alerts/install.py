"""Shipped rules become rows, each once: also when somebody deleted it since, it does not come back."""

from __future__ import annotations

from django.db import transaction

from serving.control.alerts.defaults import SHIPPED, Shipped
from serving.control.alerts.models import AlertRule, plain
from tenants.actors import Actor
from tenants.audit import Target, record
from tenants.models import AuditEvent

_SYSTEM = Actor.system("controller")
INSTALLED = "alert_rule.installed"


def install_shipped() -> int:
    """Within `all_tenants`. Returns how many rules were added."""
    known = set(AuditEvent.objects.filter(action=INSTALLED).values_list("target_name", flat=True))
    names = set(AlertRule.objects.filter(tenant=None).values_list("name", flat=True))
    return sum(_install(each) for each in SHIPPED if each.name not in known and each.name not in names)


@transaction.atomic
def _install(shipped: Shipped) -> bool:
    row, is_new = AlertRule.objects.get_or_create(
        tenant=None,
        name=shipped.name,
        defaults={
            "summary": shipped.summary,
            "severity": shipped.severity,
            "condition": plain(shipped.condition),
            "by": list(shipped.by),
            "labels": {"topic": shipped.topic},
            "for_s": shipped.for_s,
            "keep_firing_s": shipped.keep_firing_s,
            "shipped_as": shipped.name,
            "created_by": _SYSTEM.name,
        },
    )
    if is_new:
        record(by=_SYSTEM, action=INSTALLED, target=Target("alert_rule", row.pk, row.name))
    return is_new
