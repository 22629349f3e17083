"""What is watched: rules as data, what is wrong with one, and what it says of what was read. Pure.

A rule is about a metric of requests (`serving.telemetry.metrics`) over a window, or about a fact (`facts`). It is
read once per group of its labels `by`; each group is an alert of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from serving.control.alerts.facts import FACTS, Fact
from serving.telemetry.metrics import METRICS
from serving.telemetry.windows import LABELS, Window

Severity = Literal["info", "warning", "critical"]
Comparison = Literal["above", "below"]
MAX_FOR_S = 86_400
MAX_WINDOW_S = 3 * 86_400
MIN_WINDOW_S = 10
MAX_PAIRS = 4
TENANT = "tenant_id"


class Threshold(msgspec.Struct, frozen=True, tag="threshold", forbid_unknown_fields=True):
    """A metric over `window_s`, or a fact now, is above or below a value."""

    metric: str
    comparison: Comparison
    value: float
    window_s: int = 60
    min_requests: int = 1
    """With fewer there is no evidence, of metrics."""


class Ratio(msgspec.Struct, frozen=True, tag="ratio", forbid_unknown_fields=True):
    """One metric ÷ another over the same window is above or below a value."""

    part: str
    whole: str
    comparison: Comparison
    value: float
    window_s: int = 300
    min_requests: int = 1


class Absence(msgspec.Struct, frozen=True, tag="absence", forbid_unknown_fields=True):
    """No request at all in `window_s`, though gateways reported; of groups that were seen in `seen_s` before."""

    window_s: int = 300
    seen_s: int = 3600


class Pair(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Both windows burn faster than `factor`: the long one is significant, the short one says it still does."""

    long_s: int
    short_s: int
    factor: float


class BurnRate(msgspec.Struct, frozen=True, tag="burn_rate", forbid_unknown_fields=True):
    """The error budget of an objective burns too fast, in any of the pairs of windows.

    Multi-window, multi-burn-rate alerts of “The Site Reliability Workbook” (Beyer et al., O'Reilly 2018), chapter 5:
    14.4 over 1 h and 5 min spends 2 % of a month's budget in an hour, 6 over 6 h and 30 min 5 % in six hours.
    """

    objective: float = 0.99
    pairs: tuple[Pair, ...] = (Pair(3600, 300, 14.4), Pair(21_600, 1800, 6.0))
    min_requests: int = 20
    """In the long window; with fewer there is no evidence."""


Condition = Threshold | Ratio | Absence | BurnRate


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule as the engine sees it. `tenant_id` None: the platform's, over every tenant."""

    id: str
    name: str
    condition: Condition
    severity: Severity = "warning"
    tenant_id: str | None = None
    by: tuple[str, ...] = (TENANT, "model")
    only: dict[str, str] = {}
    """Labels that must have these values."""
    for_s: float = 0.0
    """So long it must be true before it fires."""
    keep_firing_s: float = 60.0
    """So long it must be untrue before it resolves."""
    labels: dict[str, str] = {}
    """Added to its alerts', for routes."""

    @property
    def fixed(self) -> dict[str, str]:
        """Values that labels must have: a tenant's rule reads its own rows, whatever it says."""
        return self.only if self.tenant_id is None else {**self.only, TENANT: self.tenant_id}


class Reading(NamedTuple):
    """What a rule says of one group: true, untrue, or None where there is no evidence."""

    labels: dict[str, str]
    is_true: bool | None
    value: float | None


class Evidence(Protocol):
    """What is read. `windows` may be asked for up to `MAX_WINDOW_S`; None where it cannot be told now."""

    def windows(self, window_s: int, by: tuple[str, ...]) -> list[Window] | None: ...

    def facts(self, name: str) -> list[Fact] | None: ...


class Answer(NamedTuple):
    """All readings of a rule. `is_whole`: a group that is not among them is gone, not merely unheard."""

    readings: list[Reading]
    is_whole: bool


def evaluate(rule: Rule, evidence: Evidence) -> Answer | None:
    """Read a rule; None while nothing can be told of any group."""
    condition = rule.condition
    if isinstance(condition, Threshold) and condition.metric in FACTS:
        return _of_fact(rule, condition, evidence)
    readings = _READERS[type(condition)](rule, condition, evidence)
    if readings is None:
        return None
    fixed = rule.fixed
    return Answer([r for r in readings if _matches(r.labels, fixed)], is_whole=False)


def labels_of(rule: Rule) -> tuple[str, ...]:
    """What its alerts are told apart by."""
    if isinstance(rule.condition, Threshold) and (fact := FACTS.get(rule.condition.metric)):
        return fact.labels
    return rule.by


def _of_fact(rule: Rule, condition: Threshold, evidence: Evidence) -> Answer | None:
    facts = evidence.facts(condition.metric)
    if facts is None:
        return None
    fixed = rule.fixed
    found = [
        Reading(f.labels, _compare(condition, f.value), f.value) for f in facts if _matches(f.labels, fixed)
    ]
    return Answer(found, is_whole=True)


def _matches(labels: Mapping[str, str], fixed: Mapping[str, str]) -> bool:
    return all(labels.get(name) == value for name, value in fixed.items())


def _compare(condition: Threshold | Ratio, value: float | None) -> bool | None:
    if value is None:
        return None
    return value > condition.value if condition.comparison == "above" else value < condition.value


def _grouping(rule: Rule) -> tuple[str, ...]:
    """Labels to read by: those that are fixed are needed to choose."""
    return tuple(label for label in LABELS if label in rule.by or label in rule.fixed)


def _threshold(rule: Rule, condition: Threshold, evidence: Evidence) -> list[Reading] | None:
    read = METRICS[condition.metric].read
    windows = evidence.windows(condition.window_s, _grouping(rule))
    if windows is None:
        return None
    out = []
    for window in windows:
        is_enough = window.covered_s > 0 and window.tally.ended >= condition.min_requests
        value = read(window.tally, window.covered_s) if is_enough else None
        out.append(Reading(window.labels, _compare(condition, value), value))
    return out


def _ratio(rule: Rule, condition: Ratio, evidence: Evidence) -> list[Reading] | None:
    part, whole = METRICS[condition.part].read, METRICS[condition.whole].read
    windows = evidence.windows(condition.window_s, _grouping(rule))
    if windows is None:
        return None
    out = []
    for window in windows:
        value = None
        if window.covered_s > 0 and window.tally.ended >= condition.min_requests:
            above, below = part(window.tally, window.covered_s), whole(window.tally, window.covered_s)
            value = above / below if above is not None and below else None
        out.append(Reading(window.labels, _compare(condition, value), value))
    return out


def _absence(rule: Rule, condition: Absence, evidence: Evidence) -> list[Reading] | None:
    by = _grouping(rule)
    before, now = evidence.windows(condition.seen_s, by), evidence.windows(condition.window_s, by)
    if before is None or now is None:
        return None
    heard = {_key(window.labels) for window in now if window.tally.ended}
    # A gap is no absence: when no gateway reported, nothing is known.
    everything = evidence.windows(condition.window_s, ())
    is_covered = bool(everything) and all(window.covered_s > 0 for window in everything or ())
    return [
        Reading(w.labels, _key(w.labels) not in heard if is_covered else None, 0.0)
        for w in before
        if w.tally.ended
    ]


def _burn_rate(rule: Rule, condition: BurnRate, evidence: Evidence) -> list[Reading] | None:
    by = _grouping(rule)
    wanted = {s for pair in condition.pairs for s in (pair.long_s, pair.short_s)}
    burns: dict[int, dict[tuple[str, ...], float | None]] = {}
    groups: dict[tuple[str, ...], dict[str, str]] = {}
    for window_s in wanted:
        windows = evidence.windows(window_s, by)
        if windows is None:
            continue
        least = condition.min_requests if any(p.long_s == window_s for p in condition.pairs) else 1
        groups |= {_key(window.labels): window.labels for window in windows}
        burns[window_s] = {_key(w.labels): burn_of(w, condition.objective, least) for w in windows}
    if not burns:
        return None
    return [_burning(condition, labels, key, burns) for key, labels in groups.items()]


def burn_of(window: Window, objective: float, min_requests: int = 1) -> float | None:
    """How many times faster than allowed the window broke promises: 1 spends the budget exactly."""
    tally = window.tally
    promised = tally.answered + tally.broken
    if window.covered_s <= 0 or promised < max(1, min_requests):
        return None
    return (1 - tally.kept / promised) / (1 - objective)


def _burning(
    condition: BurnRate,
    labels: dict[str, str],
    key: tuple[str, ...],
    burns: Mapping[int, Mapping[tuple[str, ...], float | None]],
) -> Reading:
    """True when any pair burns, None when none does and one cannot be told."""
    worst: float | None = None
    unknown = False
    for pair in condition.pairs:
        long, short = (burns.get(s, {}).get(key) for s in (pair.long_s, pair.short_s))
        if long is not None and (worst is None or long > worst):
            worst = long
        if long is not None and short is not None:
            if long > pair.factor and short > pair.factor:
                return Reading(labels, True, long)
        # One window within its bound is enough to say that the pair does not burn.
        elif (long is None or long > pair.factor) and (short is None or short > pair.factor):
            unknown = True
    return Reading(labels, None if unknown else False, worst)


def _key(labels: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(labels.values())


_READERS: dict[type[Any], Any] = {
    Threshold: _threshold,
    Ratio: _ratio,
    Absence: _absence,
    BurnRate: _burn_rate,
}


# ------------------------------------------------------------ what is wrong with a rule


def problems(rule: Rule) -> dict[str, str]:
    """Field → a sentence; empty for a rule that can be watched."""
    return dict(_problems(rule))


def _problems(rule: Rule) -> Iterator[tuple[str, str]]:
    condition = rule.condition
    if not 0 <= rule.for_s <= MAX_FOR_S:
        yield "for_s", "It is 0 seconds to a day."
    if not 0 <= rule.keep_firing_s <= MAX_FOR_S:
        yield "keep_firing_s", "It is 0 seconds to a day."
    if unknown := [label for label in (*rule.by, *rule.only) if label not in _known_labels(rule)]:
        yield "by", f"There is no label {unknown[0]!r} here."
    if rule.tenant_id is not None and TENANT not in _known_labels(rule):
        yield "condition", "This is known of the platform, not of a tenant."
    yield from (("condition", text) for text in _condition_problems(condition))


def _known_labels(rule: Rule) -> tuple[str, ...]:
    condition = rule.condition
    if isinstance(condition, Threshold) and (fact := FACTS.get(condition.metric)):
        return (*fact.labels, *(rule.by if set(rule.by) <= set(LABELS) else ()))
    return LABELS


def _condition_problems(condition: Condition) -> Iterator[str]:
    for name in _metrics_of(condition):
        if name not in METRICS and not (isinstance(condition, Threshold) and name in FACTS):
            yield f"There is no metric {name!r}."
    for window_s in _windows_of(condition):
        if not MIN_WINDOW_S <= window_s <= MAX_WINDOW_S:
            yield f"A window is of {MIN_WINDOW_S} seconds to three days, not {window_s}."
    if isinstance(condition, BurnRate):
        yield from _burn_problems(condition)


def _metrics_of(condition: Condition) -> tuple[str, ...]:
    if isinstance(condition, Ratio):
        return condition.part, condition.whole
    return (condition.metric,) if isinstance(condition, Threshold) else ()


def _windows_of(condition: Condition) -> tuple[int, ...]:
    if isinstance(condition, BurnRate):
        return tuple(s for pair in condition.pairs for s in (pair.long_s, pair.short_s))
    if isinstance(condition, Absence):
        return condition.window_s, condition.seen_s
    return (condition.window_s,)


def _burn_problems(condition: BurnRate) -> Iterator[str]:
    if not 0 < condition.objective < 1:
        yield "An objective is a share between 0 and 1."
    if not 1 <= len(condition.pairs) <= MAX_PAIRS:
        yield f"A burn rate has one to {MAX_PAIRS} pairs of windows."
    if any(pair.short_s >= pair.long_s for pair in condition.pairs):
        yield "The short window of a pair is shorter than the long one."
    if any(pair.factor <= 0 for pair in condition.pairs):
        yield "A burn rate's factor is more than 0."


encode_condition = msgspec.json.Encoder().encode


def condition_of(value: Mapping[str, Any]) -> Condition:
    """From plain data. Raises ValueError with a sentence for what is no condition."""
    try:
        return msgspec.convert(value, Condition)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
