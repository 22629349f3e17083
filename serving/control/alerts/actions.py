"""Rules are made and changed, alerts acknowledged and silenced. The controller follows with its next step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from serving.control.alerts.checks import check_rule, condition_from, matchers_from
from serving.control.alerts.models import Alert, AlertRule, AlertSilence, plain
from tenants.access import require
from tenants.actions.tenants import lock_tenant
from tenants.actors import Actor
from tenants.audit import Target, changed, record
from tenants.errors import Conflict, Invalid, NotFound
from tenants.models import Tenant
from tenants.roles import Right
from tenants.scoping import all_tenants, scope_of_row
from tenants.staleness import refuse_stale
from tenants.validation import refuse_unknown, save_valid

EDITABLE = (
    "name",
    "summary",
    "severity",
    "condition",
    "group_by",
    "only",
    "labels",
    "for_s",
    "keep_firing_s",
    "is_enabled",
)
"""`group_by` is the row's `by`: who acts has that name here."""
MAX_RULES = 50
"""Of one tenant: each is read every few seconds."""
MAX_PLATFORM_RULES = 200
MAX_SILENCES = 100
"""Of one tenant, or of the platform, that are not over."""
MAX_SILENCE = timedelta(days=90)


@transaction.atomic
def create_rule(
    *, by: Actor, tenant: Tenant | None, name: str, condition: Mapping[str, Any], **values: Any
) -> AlertRule:
    """A rule of a tenant over its own requests, or (None) of the platform over everybody's.

    Raises `Invalid` by field, `Conflict` for a name that is taken or where there are `MAX_RULES` already.
    """
    refuse_unknown(values, EDITABLE)
    require(by, Right.MANAGE_ALERTS, tenant.pk if tenant else None)
    rule = AlertRule(tenant=tenant, created_by=by.name)
    _put(rule, {"name": name, "condition": condition, **values})
    if tenant is not None:
        lock_tenant(tenant)
    with scope_of_row(rule):
        most = MAX_RULES if tenant else MAX_PLATFORM_RULES
        if AlertRule.objects.filter(tenant=tenant).count() >= most:
            raise Conflict(f"There are at most {most} rules here.")
        _save(rule)
    record(by=by, action="alert_rule.created", target=_target(rule), after=facts_of(rule), tenant=tenant)
    return rule


@transaction.atomic
def update_rule(*, by: Actor, rule: AlertRule, seen: str = "", **values: Any) -> AlertRule:
    """Change any of `EDITABLE`. What fires under a rule whose condition changes, or that is switched off, ends.

    Raises as `create_rule`, and `Conflict` when `seen` (`facts_of` as the person saw it, marked) is out of date.
    """
    refuse_unknown(values, EDITABLE)
    require(by, Right.MANAGE_ALERTS, rule.tenant_id)
    with scope_of_row(rule):
        fresh = _locked(rule)
        refuse_stale(seen, facts_of(fresh))
        if "condition" in values:
            values["condition"] = condition_from(values["condition"])
        before, after = changed(facts_of(fresh), values)
        if not after:
            return fresh
        _put(fresh, after)
        _save(fresh)
    target, tenant = _target(fresh), fresh.tenant
    record(by=by, action="alert_rule.updated", target=target, before=before, after=after, tenant=tenant)
    return fresh


@transaction.atomic
def delete_rule(*, by: Actor, rule: AlertRule) -> None:
    """Raises `Conflict` while it fires: whoever was told of an alert is told that it is over first."""
    require(by, Right.MANAGE_ALERTS, rule.tenant_id)
    with all_tenants("a rule of the platform has alerts about any tenant"):
        fresh = _locked(rule)
        if fresh.alerts.filter(state="firing").exists():
            raise Conflict("It fires. Switch it off first: its alerts end, and whoever was told is told so.")
        target, before = _target(fresh), facts_of(fresh)
        fresh.delete()
    record(by=by, action="alert_rule.deleted", target=target, before=before, tenant=rule.tenant)


@transaction.atomic
def acknowledge(*, by: Actor, alert: Alert, comment: str = "") -> Alert:
    """Somebody looks at it: it is not told again until it fires anew. Raises `Conflict` unless it fires.

    A gate (`access_alert`, to acknowledge) allowed it before.
    """
    with all_tenants("an alert of the platform's rule is acknowledged by its operators"):
        fresh = Alert.objects.select_for_update(of=("self",)).select_related("rule", "tenant")
        found = fresh.filter(pk=alert.pk).first()
        if found is None:
            raise NotFound("alert")
        require(by, Right.MANAGE_ALERTS, found.rule.tenant_id)
        if found.state != "firing":
            raise Conflict("It does not fire any more.")
        if found.is_acknowledged:
            raise Conflict(f"{found.acknowledged_by} acknowledged it already.")
        found.acknowledged_at, found.acknowledged_by = timezone.now(), by.name
        found.acknowledgement = comment
        save_valid(found, only=("acknowledged_at", "acknowledged_by", "acknowledgement"))
    after = {"labels": found.labels, "comment": comment}
    target = Target("alert", found.pk, found.rule.name)
    record(by=by, action="alert.acknowledged", target=target, after=after, tenant=found.tenant)
    return found


@transaction.atomic
def create_silence(
    *,
    by: Actor,
    tenant: Tenant | None,
    matchers: Iterable[Mapping[str, Any]],
    ends_at: datetime,
    comment: str,
    starts_at: datetime | None = None,
) -> AlertSilence:
    """Keep alerts that meet every matcher from being told. They fire, and are shown, all the same.

    Raises `Invalid` by field, `Conflict` where there are `MAX_SILENCES` that are not over.
    """
    require(by, Right.MANAGE_ALERTS, tenant.pk if tenant else None)
    now = timezone.now()
    silence = AlertSilence(
        tenant=tenant,
        matchers=plain(matchers_from(matchers)),
        starts_at=starts_at or now,
        ends_at=ends_at,
        comment=comment,
        created_by=by.name,
    )
    _check_span(silence, now)
    if tenant is not None:
        lock_tenant(tenant)
    with scope_of_row(silence):
        if AlertSilence.objects.filter(tenant=tenant, ends_at__gt=now).count() >= MAX_SILENCES:
            raise Conflict(f"There are at most {MAX_SILENCES} silences here that are not over.")
        save_valid(silence)
    after = {"matchers": silence.matchers, "starts_at": silence.starts_at, "ends_at": ends_at}
    record(by=by, action="silence.created", target=_target(silence), after=after, tenant=tenant)
    return silence


@transaction.atomic
def end_silence(*, by: Actor, silence: AlertSilence) -> AlertSilence:
    """From now on its alerts are told again. One that has not begun will not. Raises `Conflict` when it is over."""
    require(by, Right.MANAGE_ALERTS, silence.tenant_id)
    now = timezone.now()
    with scope_of_row(silence):
        fresh = AlertSilence.objects.select_for_update(of=("self",)).select_related("tenant")
        found = fresh.filter(pk=silence.pk).first()
        if found is None:
            raise NotFound("silence")
        if found.ends_at <= now:
            raise Conflict("It is over already.")
        before = {"ends_at": found.ends_at}
        found.ends_at = now
        found.starts_at = min(found.starts_at, now - timedelta(microseconds=1))
        save_valid(found)
    target, after = _target(found), {"ends_at": found.ends_at}
    record(by=by, action="silence.ended", target=target, before=before, after=after, tenant=found.tenant)
    return found


def facts_of(rule: AlertRule) -> dict[str, Any]:
    return {name: getattr(rule, _COLUMNS.get(name, name)) for name in EDITABLE}


_COLUMNS = {"group_by": "by"}


def _put(rule: AlertRule, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        setattr(rule, _COLUMNS.get(name, name), value)


def _save(rule: AlertRule) -> None:
    _check(rule)
    save_valid(rule)


def _check(rule: AlertRule) -> None:
    rule.condition = condition_from(rule.condition)
    check_rule(rule.rule())


def _check_span(silence: AlertSilence, now: datetime) -> None:
    if silence.ends_at <= now:
        raise Invalid({"ends_at": "It ends in the future."})
    if silence.ends_at - max(silence.starts_at, now) > MAX_SILENCE:
        raise Invalid({"ends_at": f"A silence lasts at most {MAX_SILENCE.days} days."})
    if silence.starts_at > now + MAX_SILENCE:
        raise Invalid({"starts_at": f"A silence begins within {MAX_SILENCE.days} days."})


def _locked(rule: AlertRule) -> AlertRule:
    fresh = AlertRule.objects.select_for_update(of=("self",)).select_related("tenant")
    found = fresh.filter(pk=rule.pk).first()
    if found is None:
        raise NotFound("alert rule")
    return found


def _target(row: AlertRule | AlertSilence) -> Target:
    kind = "alert_rule" if isinstance(row, AlertRule) else "silence"
    return Target(kind, row.pk, str(row)[:200])
