"""The controller's watch: rules that are due are read, and what came of it is kept and sent, in one transaction."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

import structlog
from django.db import transaction

from serving.control.alerts import notify, store
from serving.control.alerts.engine import Alert as AlertNow
from serving.control.alerts.engine import Step, advance, end_all
from serving.control.alerts.install import install_shipped
from serving.control.alerts.models import Alert, AlertRoute, AlertRule, AlertSilence
from serving.control.alerts.rules import Absence, BurnRate, Rule, evaluate, problems
from serving.control.alerts.sources import Sources
from tenants.models import Tenant
from tenants.scoping import all_tenants

log = structlog.get_logger(__name__)

BUDGET_S = 0.1
"""How long one step reads rules; those left are first in the next."""
SOON_S = 2.0
LATER_S = 15.0
"""How often a rule is read: one over longer windows changes slowly."""
WRITTEN_EACH_S = 10.0
_WHY = "rules of the platform and of every tenant are watched"
Tell = Callable[[list[Alert]], object]
"""Is given the rows of alerts that moved, after the transaction."""


@dataclass(slots=True)
class _Watched:
    row: AlertRule
    rule: Rule
    due_at: float = 0.0
    alerts: dict[str, AlertNow] = field(default_factory=dict)
    written: dict[str, AlertNow] = field(default_factory=dict)
    """As the tables have them: moments and values of what goes on as before are written now and then only."""

    def to_write(self, step: Step) -> Step:
        changed = [
            alert for alert in step.changed if _is_worth_writing(self.written.get(alert.fingerprint), alert)
        ]
        return step._replace(changed=changed)

    def wrote(self, step: Step) -> None:
        self.alerts = step.alerts
        for fingerprint in step.dropped:
            self.written.pop(fingerprint, None)
        self.written |= {alert.fingerprint: alert for alert in step.changed}


class AlertWatch:
    """One controller's. What it holds besides the rules is read back from the tables when it begins."""

    def __init__(self, sources: Sources, tell: Tell = lambda moved: None, budget_s: float = BUDGET_S) -> None:
        self._sources, self._tell, self._budget_s = sources, tell, budget_s
        self._watched: dict[str, _Watched] | None = None
        self._told: dict[notify.GroupKey, notify.Told] = {}

    def step(self, now: datetime) -> None:
        with all_tenants(_WHY):
            try:
                moved = self._step(now)
            except Exception:
                self._watched = None  # what is in memory may be ahead of the tables
                raise
        if moved:
            self._tell(moved)

    def _step(self, now: datetime) -> list[Alert]:
        self._sources.begin(now)
        if self._watched is None:
            self._begin()
        steps = self._ended(now) + self._evaluated(now)
        with transaction.atomic():
            tenants = set(Tenant.objects.values_list("pk", flat=True)) if steps else set()
            for watched, step in steps:
                store.write(watched.row, step, tenants)
            self._notify(now)
        for watched, step in steps:
            watched.wrote(step)
        prints = [move.alert.fingerprint for _, step in steps for move in step.transitions]
        rows = Alert.objects.filter(pk__in=prints).select_related("rule", "tenant") if prints else []
        return list(rows)

    def _begin(self) -> None:
        install_shipped()
        held = store.alerts_of_all()
        self._told = store.told_so_far()
        self._watched = {}
        for row in AlertRule.objects.all():
            if (rule := _readable(row)) is not None:
                alerts = held.get(row.pk, {})
                self._watched[row.pk] = _Watched(row, rule, alerts=alerts, written=dict(alerts))

    def _ended(self, now: datetime) -> list[tuple[_Watched, Step]]:
        """Take up rules as they are now; alerts of those that changed or were switched off end."""
        assert self._watched is not None
        rows = {row.pk: row for row in AlertRule.objects.all()}
        for gone in self._watched.keys() - rows.keys():
            del self._watched[gone]
        out = []
        for row in rows.values():
            rule, held = _readable(row), self._watched.get(row.pk)
            if rule is None:
                continue
            if held is None:
                held = self._watched[row.pk] = _Watched(row, rule)
            is_other = held.rule != rule and _meaning(held.rule) != _meaning(rule)
            held.row, held.rule = row, rule
            is_firing = any(alert.state != "resolved" for alert in held.alerts.values())
            if is_firing and (is_other or not row.is_enabled):
                out.append((held, end_all(held.alerts, now.timestamp())))
                held.due_at = now.timestamp() + SOON_S
        return out

    def _evaluated(self, now: datetime) -> list[tuple[_Watched, Step]]:
        assert self._watched is not None
        now_s, until = now.timestamp(), time.monotonic() + self._budget_s
        due = sorted(
            (w for w in self._watched.values() if w.row.is_enabled and w.due_at <= now_s),
            key=lambda w: w.due_at,
        )
        out = []
        for watched in due:
            watched.due_at = now_s + (LATER_S if _is_slow(watched.rule) else SOON_S)
            answer = evaluate(watched.rule, self._sources)
            step = watched.to_write(advance(watched.rule, watched.alerts, answer, now_s))
            if step.left_out:
                log.warning("alerts.left_out", rule=watched.row.name, alerts=step.left_out)
            if step.changed or step.dropped:
                out.append((watched, step))
            else:
                watched.alerts = step.alerts
            if time.monotonic() >= until:
                break
        return out

    def _notify(self, now: datetime) -> None:
        """Every step, since groups wait and repeat; without an alert that anybody knows there is nothing to do."""
        alerts = list(Alert.objects.exclude(state="pending").select_related("rule"))
        if not alerts and not self._told:
            return
        standings = [alert.standing() for alert in alerts]
        silences = [s.silence() for s in AlertSilence.objects.filter(starts_at__lte=now, ends_at__gt=now)]
        quiet = notify.muted(standings, silences, now.timestamp())
        store.write_quiet(alerts, quiet)
        routes = list(AlertRoute.objects.filter(is_enabled=True))
        done = notify.plan(
            standings,
            self._told,
            [route.route() for route in routes],
            now.timestamp(),
            quiet,
            _for_platform(standings, silences, quiet, now.timestamp()),
        )
        store.write_round(done, self._told, _owners(routes))
        self._told = done.told


def _for_platform(
    standings: list[notify.Standing], silences: list[notify.Silence], quiet: Mapping[str, str], now_s: float
) -> Mapping[str, str]:
    own = [silence for silence in silences if silence.tenant_id is None]
    return quiet if len(own) == len(silences) else notify.muted(standings, own, now_s)


def _is_worth_writing(written: AlertNow | None, alert: AlertNow) -> bool:
    if written is None or alert.heard_at - written.heard_at >= WRITTEN_EACH_S:
        return True
    return _facts(written) != _facts(alert)


def _facts(alert: AlertNow) -> tuple[object, ...]:
    return alert.state, alert.since, alert.fired_at, alert.resolved_at, alert.is_stale


def _owners(routes: Iterable[AlertRoute]) -> Mapping[str, str | None]:
    return {route.pk: route.tenant_id for route in routes}


def _readable(row: AlertRule) -> Rule | None:
    """A rule that cannot be watched (a newer version wrote it) fails alone."""
    try:
        rule = row.rule()
    except ValueError as error:
        log.warning("alerts.rule_unreadable", rule=row.pk, error=str(error))
        return None
    if wrong := problems(rule):
        log.warning("alerts.rule_unreadable", rule=row.pk, error=str(wrong))
        return None
    return rule


def _meaning(rule: Rule) -> tuple[object, ...]:
    """What decides whether its alerts are still the same ones."""
    return rule.condition, rule.by, rule.fixed, rule.tenant_id


def _is_slow(rule: Rule) -> bool:
    return isinstance(rule.condition, BurnRate | Absence)
