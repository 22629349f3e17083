"""From alerts to notifications: who is told what, together, and not again. Pure.

The ideas are Alertmanager's (routes, groups, inhibition, silences); unlike there, an episode whose firing was told
is always told to be over, and what fired and resolved while its group waited is told once.

Nothing is derived from events: alerts as they are, what was told (`Told`) and `now` decide. A lost step or a restart
therefore loses no notification and repeats none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from serving.control.alerts.engine import Alert
from serving.control.alerts.rules import TENANT, Rule, Severity

Reason = Literal["fired", "resolved", "changed", "repeated"]
MAX_IN_NOTIFICATION = 100
ALERT_NAME = "alert"
"""Label that holds the rule's name."""
DEFAULT_GROUP_BY = (ALERT_NAME, TENANT)


class Matcher(msgspec.Struct, frozen=True):
    """A label is, or is not, a value; a pattern must match whole. A label that is not there is empty."""

    label: str
    value: str
    operator: Literal["=", "!=", "=~", "!~"] = "="

    def matches(self, labels: Mapping[str, str]) -> bool:
        found = labels.get(self.label, "")
        is_met = (
            found == self.value if self.operator in ("=", "!=") else bool(re.fullmatch(self.value, found))
        )
        return is_met != self.operator.startswith("!")


class Silence(msgspec.Struct, frozen=True, kw_only=True):
    """Of a tenant it mutes that tenant's alerts for its own routes; of none, every alert for everybody."""

    id: str
    matchers: tuple[Matcher, ...]
    starts_at: float
    ends_at: float
    tenant_id: str | None = None

    def mutes(self, alert: Standing, now: float) -> bool:
        if not self.starts_at <= now < self.ends_at:
            return False
        if self.tenant_id is not None and alert.tenant_id != self.tenant_id:
            return False
        return all(matcher.matches(alert.labels) for matcher in self.matchers)


class Inhibition(msgspec.Struct, frozen=True):
    """While an alert that meets `source` fires, those that meet `target` and share `equal` are not told."""

    source: tuple[Matcher, ...]
    target: tuple[Matcher, ...]
    equal: tuple[str, ...] = ()


DEFAULT_INHIBITIONS = (
    Inhibition(
        (Matcher("severity", "critical"), Matcher("topic", "", "!=")),
        (Matcher("severity", "warning|info", "=~"),),
        ("topic", "tenant_id", "model"),
    ),
)
"""A critical alert of a topic speaks for the milder ones of the same tenant and model."""


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """Alerts that meet all matchers go to each receiver. A tenant's route sees that tenant's alerts only."""

    id: str
    receivers: tuple[str, ...]
    """Ids of channels."""
    matchers: tuple[Matcher, ...] = ()
    tenant_id: str | None = None
    group_by: tuple[str, ...] = DEFAULT_GROUP_BY
    group_wait_s: float = 5.0
    group_interval_s: float = 300.0
    repeat_interval_s: float = 4 * 3600.0


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """An alert with what notifications say of it beside its state."""

    alert: Alert
    rule_id: str
    rule_name: str
    severity: Severity
    labels: dict[str, str]
    """The alert's own, its rule's, `alert` and `severity`."""
    tenant_id: str | None = None
    is_acknowledged: bool = False
    summary: str = ""
    is_of_platform: bool = True
    """Its rule is the platform's."""

    @property
    def episode(self) -> tuple[str, float]:
        return self.alert.fingerprint, self.alert.fired_at or 0.0


Known = Literal["waiting", "firing", "resolved"]
Episodes = dict[str, tuple[float, Known]]
"""Fingerprint → when it fired, and as what it was told; `waiting` until its group is due."""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What one group of one receiver knows."""

    first_at: float
    """Since when there is something to tell; the group waits from then."""
    sent_at: float | None = None
    episodes: Episodes = {}
    """What was told of each alert, or waits to be."""


GroupKey = tuple[str, str, str]
"""Route, receiver, labels of the group."""


class Notification(msgspec.Struct, frozen=True, kw_only=True):
    """What one channel is sent, once. `id` names it: a delivery that is repeated carries the same."""

    id: str
    receiver: str
    """Id of the channel."""
    route_id: str
    group_key: str
    group_labels: dict[str, str]
    reason: Reason
    alerts: tuple[Standing, ...]
    """Firing first, then resolved; at most `MAX_IN_NOTIFICATION`."""
    left_out: int
    news: tuple[tuple[str, float, str], ...]
    """(fingerprint, fired at, state) that this tells for the first time."""
    at: float


class Round(NamedTuple):
    told: dict[GroupKey, Told]
    notifications: list[Notification]


def standing(rule: Rule, alert: Alert, *, is_acknowledged: bool = False, summary: str = "") -> Standing:
    """An alert of a rule, as routes and channels see it."""
    labels = {**rule.labels, **alert.labels, ALERT_NAME: rule.name, "severity": rule.severity}
    return Standing(
        alert=alert,
        rule_id=rule.id,
        rule_name=rule.name,
        severity=rule.severity,
        labels=labels,
        tenant_id=rule.tenant_id or alert.labels.get(TENANT),
        is_acknowledged=is_acknowledged,
        summary=summary,
        is_of_platform=rule.tenant_id is None,
    )


def muted(
    alerts: Sequence[Standing],
    silences: Sequence[Silence],
    now: float,
    inhibitions: Sequence[Inhibition] = DEFAULT_INHIBITIONS,
) -> dict[str, str]:
    """Fingerprint → what keeps it quiet: a silence's id, or `inhibited`."""
    active = [silence for silence in silences if silence.starts_at <= now < silence.ends_at]
    speaking = [_speaking(alerts, inhibition) for inhibition in inhibitions]
    out: dict[str, str] = {}
    for each in alerts:
        by = next((silence.id for silence in active if silence.mutes(each, now)), None)
        if by is None and any(_is_inhibited(each, *pair) for pair in zip(inhibitions, speaking, strict=True)):
            by = "inhibited"
        if by is not None:
            out[each.alert.fingerprint] = by
    return out


def _speaking(
    alerts: Sequence[Standing], inhibition: Inhibition
) -> dict[tuple[str, ...], dict[str, Standing]]:
    found: dict[tuple[str, ...], dict[str, Standing]] = {}
    for each in alerts:
        if each.alert.state == "firing" and all(m.matches(each.labels) for m in inhibition.source):
            found.setdefault(_equal(each, inhibition), {})[each.alert.fingerprint] = each
    return found


def _equal(alert: Standing, inhibition: Inhibition) -> tuple[str, ...]:
    return tuple(alert.labels.get(label, "") for label in inhibition.equal)


def _is_inhibited(
    alert: Standing, inhibition: Inhibition, speaking: Mapping[tuple[str, ...], Mapping[str, Standing]]
) -> bool:
    """A tenant's rule never speaks for the platform's: operators are told whatever a tenant watches."""
    others = speaking.get(_equal(alert, inhibition), {})
    is_spoken_for = any(
        fingerprint != alert.alert.fingerprint and (other.is_of_platform or not alert.is_of_platform)
        for fingerprint, other in others.items()
    )
    return is_spoken_for and all(m.matches(alert.labels) for m in inhibition.target)


def plan(
    alerts: Sequence[Standing],
    told: Mapping[GroupKey, Told],
    routes: Iterable[Route],
    now: float,
    quiet: Mapping[str, str],
    platform_quiet: Mapping[str, str] | None = None,
) -> Round:
    """What is to be sent now, and what everybody knows after it. `quiet` comes from `muted`.

    `platform_quiet` is the same without silences of tenants: no tenant keeps the platform's routes from telling.
    """
    for_platform = quiet if platform_quiet is None else platform_quiet
    after: dict[GroupKey, Told] = {}
    out: list[Notification] = []
    for route in routes:
        its_quiet = for_platform if route.tenant_id is None else quiet
        for text, members in _groups(route, alerts).items():
            for receiver in route.receivers:
                key = (route.id, receiver, text)
                knows, sent = _group(route, key, members, told.get(key), now, its_quiet)
                if knows is not None:
                    after[key] = knows
                if sent is not None:
                    out.append(sent)
    return Round(after, out)


def _groups(route: Route, alerts: Sequence[Standing]) -> dict[str, list[Standing]]:
    out: dict[str, list[Standing]] = {}
    for each in alerts:
        if each.alert.state == "pending" or (
            route.tenant_id is not None and each.tenant_id != route.tenant_id
        ):
            continue
        if all(matcher.matches(each.labels) for matcher in route.matchers):
            labels = _group_labels(route, each)
            text = ",".join(f"{name}={value}" for name, value in labels.items())
            out.setdefault(text, []).append(each)
    return out


def _group_labels(route: Route, alert: Standing) -> dict[str, str]:
    return {name: alert.labels[name] for name in route.group_by if name in alert.labels}


def _group(
    route: Route,
    key: GroupKey,
    members: list[Standing],
    knows: Told | None,
    now: float,
    quiet: Mapping[str, str],
) -> tuple[Told | None, Notification | None]:
    episodes = knows.episodes if knows is not None else {}
    news = [each for each in members if _is_news(each, episodes, quiet)]
    kept = {fp: told for fp, told in episodes.items() if any(m.alert.fingerprint == fp for m in members)}
    is_repeat = not news and knows is not None and _is_to_repeat(route, members, kept, knows, now, quiet)
    if not news and not is_repeat:
        return _still(knows, kept, now), None
    knows = knows or Told(first_at=now)
    if news and now < _due(route, knows):
        kept |= {each.alert.fingerprint: _waiting(each, kept) for each in news}
        return msgspec.structs.replace(knows, episodes=kept), None
    return _tell(route, key, members, kept, knows, news, now, quiet)


def _still(knows: Told | None, kept: Episodes, now: float) -> Told | None:
    """Nothing to tell. A group that knows nothing any more is forgotten."""
    if knows is None or not kept:
        return None
    return msgspec.structs.replace(knows, episodes=kept)


def _due(route: Route, knows: Told) -> float:
    if knows.sent_at is None:
        return knows.first_at + route.group_wait_s
    return knows.sent_at + route.group_interval_s


def _is_news(
    each: Standing,
    episodes: Episodes,
    quiet: Mapping[str, str],
) -> bool:
    """Whoever was told that it fires is told that it is over, silenced or not. What nobody waited for is past."""
    fired_at, known = episodes.get(each.alert.fingerprint, (None, None))
    is_quiet = each.alert.fingerprint in quiet
    if fired_at != each.alert.fired_at:
        return each.alert.state == "firing" and not is_quiet
    if known == "waiting":
        return not is_quiet
    return known == "firing" and each.alert.state == "resolved"


def _waiting(each: Standing, episodes: Episodes) -> tuple[float, Known]:
    """What was told stays told while more waits."""
    told = episodes.get(each.alert.fingerprint)
    if told is not None and told[0] == each.alert.fired_at:
        return told
    return each.alert.fired_at or 0.0, "waiting"


def _is_to_repeat(
    route: Route,
    members: Iterable[Standing],
    episodes: Episodes,
    knows: Told,
    now: float,
    quiet: Mapping[str, str],
) -> bool:
    if knows.sent_at is None or now < knows.sent_at + route.repeat_interval_s:
        return False
    return any(
        each.alert.state == "firing"
        and not each.is_acknowledged
        and each.alert.fingerprint in episodes
        and each.alert.fingerprint not in quiet
        for each in members
    )


def _tell(
    route: Route,
    key: GroupKey,
    members: list[Standing],
    kept: Episodes,
    knows: Told,
    news: list[Standing],
    now: float,
    quiet: Mapping[str, str],
) -> tuple[Told, Notification]:
    new = {each.alert.fingerprint for each in news}
    shown = [
        each
        for each in members
        if each.alert.fingerprint in new
        or (each.alert.state == "firing" and each.alert.fingerprint not in quiet)
    ]
    shown.sort(
        key=lambda each: (each.alert.state != "firing", each.alert.fingerprint not in new, each.episode)
    )
    for each in news:
        kept[each.alert.fingerprint] = (each.alert.fired_at or 0.0, _told_state(each))
    sent = Notification(
        id="-".join((*key, f"{now:.3f}")),
        receiver=key[1],
        route_id=route.id,
        group_key=key[2],
        group_labels=_group_labels(route, shown[0]),
        reason=_reason(news, shown),
        alerts=tuple(shown[:MAX_IN_NOTIFICATION]),
        left_out=max(0, len(shown) - MAX_IN_NOTIFICATION),
        news=tuple((*each.episode, each.alert.state) for each in news),
        at=now,
    )
    return msgspec.structs.replace(knows, sent_at=now, episodes=kept), sent


def _told_state(each: Standing) -> Known:
    return "firing" if each.alert.state == "firing" else "resolved"


def _reason(news: list[Standing], shown: list[Standing]) -> Reason:
    if not news:
        return "repeated"
    if all(each.alert.state == "resolved" for each in shown):
        return "resolved"
    return "fired" if any(each.alert.state == "firing" for each in news) else "changed"
