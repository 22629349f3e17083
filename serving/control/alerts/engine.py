"""From readings to alerts: `pending`, `firing`, `resolved`, and the moments between them. Pure.

The states of a rule's alerts and `now` go in, new states and transitions come out. States are plain data: a
controller that restarts reads them back and goes on, and no transition is made twice or lost.

- An alert fires after it was true for `for_s`, and resolves after it was untrue for `keep_firing_s`. What fired
  several times within an hour has to be calm for longer each time: it does not flap.
- Without evidence nothing resolves. The alert is marked stale; after `LOST_S` without any it ends as `no_data`.
- A rule has at most `MAX_ALERTS` alerts; what else would fire is counted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

import msgspec

from serving.control.alerts.rules import Answer, Reading, Rule, labels_of

State = Literal["pending", "firing", "resolved"]
Why = Literal["", "calm", "gone", "no_data", "rule_changed"]

MAX_ALERTS = 200
LOST_S = 3600.0
PENDING_LOST_S = 60.0
FLAP_WINDOW_S = 3600.0
FLAP_KEEP_S = 60.0
MAX_KEEP_S = 1800.0
RESOLVED_KEPT_S = FLAP_WINDOW_S
"""So long after its end an alert is remembered: for the flap count, and until everybody was told."""


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """One group of one rule. Times are Unix seconds; an episode is (fingerprint, `fired_at`)."""

    fingerprint: str
    labels: dict[str, str]
    state: State
    since: float
    """True since then."""
    fired_at: float | None = None
    resolved_at: float | None = None
    true_at: float = 0.0
    """Last seen true, so."""
    heard_at: float = 0.0
    """Last seen at all."""
    value: float | None = None
    """The last one known."""
    is_stale: bool = False
    why: Why = ""
    """Why it resolved."""
    fires: tuple[float, ...] = ()
    """When it fired within `FLAP_WINDOW_S`, newest last."""


class Transition(NamedTuple):
    """`firing` or `resolved`, once for each episode."""

    alert: Alert
    at: float


class Step(NamedTuple):
    """What a rule's evaluation came to. `alerts` replaces what there was; `changed` are those that differ."""

    alerts: dict[str, Alert]
    changed: list[Alert]
    dropped: list[str]
    transitions: list[Transition]
    left_out: int
    """Groups that would fire beyond `MAX_ALERTS`."""


def fingerprint(rule_id: str, labels: Mapping[str, str]) -> str:
    """16 hex digits: the same rule and labels are the same alert."""
    named = msgspec.json.encode([rule_id, sorted(labels.items())])
    return hashlib.blake2b(named, digest_size=8).hexdigest()


def advance(rule: Rule, alerts: Mapping[str, Alert], answer: Answer | None, now: float) -> Step:
    """Take in one evaluation. With `answer` None nothing could be told: what fires becomes stale."""
    after: dict[str, Alert] = {}
    left_out = 0
    by = labels_of(rule)
    known = {_key(alert.labels, by): alert for alert in alerts.values()}
    for reading in answer.readings if answer is not None else ():
        held = known.pop(_key(reading.labels, by), None)
        if held is None:
            if reading.is_true is not True:
                continue
            if len(after) + len(known) >= MAX_ALERTS:
                left_out += 1
                continue
            held = _begin(rule, reading, by, now)
        after[held.fingerprint] = _next(rule, held, reading.is_true, reading.value, now)
    is_gone = answer is not None and answer.is_whole
    for alert in known.values():
        after[alert.fingerprint] = _unseen(rule, alert, is_gone, now)
    return _step(alerts, after, left_out, now)


def end_all(alerts: Mapping[str, Alert], now: float) -> Step:
    """Of a rule that was changed, switched off or deleted: what fires resolves, what is pending is forgotten."""
    ended = {fp: _resolve(a, now, "rule_changed") for fp, a in alerts.items() if a.state == "firing"}
    kept = {fp: a for fp, a in alerts.items() if a.state == "resolved"}
    return _step(alerts, {**ended, **kept}, 0, now)


def keep_firing_s(rule: Rule, alert: Alert, now: float) -> float:
    """How long it must be untrue: twice as long for every time it fired again within `FLAP_WINDOW_S`."""
    again = sum(at > now - FLAP_WINDOW_S for at in alert.fires) - 1
    if again <= 0:
        return rule.keep_firing_s
    damped: float = max(rule.keep_firing_s, FLAP_KEEP_S) * 2**again
    return max(rule.keep_firing_s, min(damped, MAX_KEEP_S))


def _key(labels: Mapping[str, str], by: Iterable[str]) -> tuple[str, ...]:
    return tuple([labels.get(name, "") for name in by])


def _begin(rule: Rule, reading: Reading, by: tuple[str, ...], now: float) -> Alert:
    labels = {name: reading.labels[name] for name in by if name in reading.labels}
    return Alert(
        fingerprint=fingerprint(rule.id, labels),
        labels=labels,
        state="pending",
        since=now,
        true_at=now,
        heard_at=now,
    )


def _next(rule: Rule, alert: Alert, is_true: bool | None, value: float | None, now: float) -> Alert:
    if is_true is None:
        return _unheard(alert, now)
    heard = msgspec.structs.replace(
        alert, heard_at=now, is_stale=False, value=alert.value if value is None else value
    )
    return _true(rule, heard, now) if is_true else _untrue(rule, heard, now)


def _true(rule: Rule, alert: Alert, now: float) -> Alert:
    if alert.state == "firing":
        return msgspec.structs.replace(alert, true_at=now)
    since = now if alert.state == "resolved" else alert.since
    if now - since < rule.for_s:
        pending = {"state": "pending", "fired_at": None, "resolved_at": None, "why": ""}
        return msgspec.structs.replace(alert, since=since, true_at=now, **pending)
    fires = (*(at for at in alert.fires if at > now - FLAP_WINDOW_S), now)
    return msgspec.structs.replace(
        alert,
        state="firing",
        since=since,
        fired_at=now,
        resolved_at=None,
        true_at=now,
        why="",
        fires=fires[-8:],
    )


def _untrue(rule: Rule, alert: Alert, now: float) -> Alert:
    if alert.state == "firing" and now - alert.true_at >= keep_firing_s(rule, alert, now):
        return _resolve(alert, now, "calm")
    return alert


def _unheard(alert: Alert, now: float) -> Alert:
    """No evidence is neither true nor untrue."""
    if alert.state != "firing":
        return alert
    if now - alert.heard_at >= LOST_S:
        return _resolve(alert, now, "no_data")
    return alert if alert.is_stale else msgspec.structs.replace(alert, is_stale=True)


def _unseen(rule: Rule, alert: Alert, is_gone: bool, now: float) -> Alert:
    if not is_gone:
        return _unheard(alert, now)
    ended = _untrue(rule, alert, now)
    return msgspec.structs.replace(ended, why="gone") if ended is not alert else ended


def _resolve(alert: Alert, now: float, why: Why) -> Alert:
    return msgspec.structs.replace(alert, state="resolved", resolved_at=now, is_stale=False, why=why)


def _is_over(alert: Alert, now: float) -> bool:
    """Pending alerts that are untrue, and resolved ones nobody needs any more."""
    if alert.state == "pending":
        is_untrue = alert.heard_at > alert.true_at
        return is_untrue or now - alert.heard_at >= PENDING_LOST_S
    return alert.state == "resolved" and now - (alert.resolved_at or 0.0) >= RESOLVED_KEPT_S


def _step(before: Mapping[str, Alert], after: dict[str, Alert], left_out: int, now: float) -> Step:
    kept = {fp: alert for fp, alert in after.items() if not _is_over(alert, now)}
    changed = [alert for fp, alert in kept.items() if before.get(fp) != alert]
    dropped = [fp for fp in before if fp not in kept]
    moved = [Transition(a, now) for a in changed if _has_moved(before.get(a.fingerprint), a)]
    return Step(kept, changed, dropped, moved, left_out)


def _has_moved(before: Alert | None, after: Alert) -> bool:
    if after.state == "pending":
        return False
    return before is None or before.state != after.state
