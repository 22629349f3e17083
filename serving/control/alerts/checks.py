"""What people may write into rules and silences: everything bounded, nothing that costs the controller much. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from serving.control.alerts.facts import FACTS
from serving.control.alerts.notify import ALERT_NAME, Matcher
from serving.control.alerts.rules import (
    TENANT,
    Condition,
    Rule,
    Threshold,
    condition_of,
    encode_condition,
    problems,
)
from serving.telemetry.windows import LABELS
from tenants.errors import Invalid

MAX_LABELS = 8
MAX_MATCHERS = 10
MAX_VALUE_CHARS = 200
MAX_WILDCARDS = 3
RESERVED = frozenset({*LABELS, ALERT_NAME, "severity"})
"""Labels that say what an alert is about: no rule sets them to something else."""
OF_PLATFORM = frozenset({"topic"})
"""With it a critical alert speaks for milder ones: a tenant's rule must not speak for the platform's."""
_LABEL = re.compile(r"[a-z][a-z0-9_]{0,39}")
_PATTERN = re.compile(r"(?:[\w /:@,=-]|\\.|\.\*|\.(?!\*)|\|)*")
"""Words, `|` between them, `.` and `.*`: enough to choose labels, and nothing that takes long to match."""


def condition_from(value: Any) -> dict[str, Any]:
    """A condition as it is stored, its defaults filled in. Raises `Invalid`."""
    if not isinstance(value, Mapping):
        raise Invalid({"condition": "It is an object with a `type`."})
    if not all(math.isfinite(number) for number in _numbers(value)):
        raise Invalid({"condition": "Numbers are finite."})
    try:
        read: dict[str, Any] = msgspec.json.decode(encode_condition(condition_of(value)))
    except ValueError as error:
        raise Invalid({"condition": str(error)}) from None
    return read


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for each in value:
            yield from _numbers(each)
    elif isinstance(value, float):
        yield value


def check_rule(rule: Rule) -> None:
    """Raises `Invalid` by field of the actions."""
    wrong = {("group_by" if name == "by" else name): text for name, text in problems(rule).items()}
    if len(set(rule.by)) < len(rule.by):
        wrong.setdefault("group_by", "Each label once.")
    for field, labels in (("only", rule.only), ("labels", rule.labels)):
        if text := _wrong_labels(labels):
            wrong.setdefault(field, text)
    refused = RESERVED if rule.tenant_id is None else RESERVED | OF_PLATFORM
    if taken := sorted(refused & rule.labels.keys()):
        wrong.setdefault("labels", f"The label {taken[0]!r} is set by the platform.")
    if rule.tenant_id is not None and TENANT in rule.only:
        wrong.setdefault("only", "A tenant's rule reads that tenant's requests already.")
    if rule.tenant_id is not None and _is_of_platform(rule.condition):
        wrong.setdefault("condition", "This is known of the platform, not of a tenant.")
    if wrong:
        raise Invalid(wrong)


def _is_of_platform(condition: Condition) -> bool:
    fact = FACTS.get(condition.metric) if isinstance(condition, Threshold) else None
    return fact is not None and TENANT not in fact.labels


def _wrong_labels(labels: Any) -> str:
    if not isinstance(labels, Mapping) or len(labels) > MAX_LABELS:
        return f"At most {MAX_LABELS} labels, each with a value."
    for name, value in labels.items():
        if not (isinstance(name, str) and _LABEL.fullmatch(name)):
            return "A label is of lower-case letters, digits and underscores, and begins with a letter."
        if not (isinstance(value, str) and 0 < len(value) <= MAX_VALUE_CHARS):
            return f"A label's value is a text of 1 to {MAX_VALUE_CHARS} characters."
    return ""


def matchers_from(values: Iterable[Mapping[str, Any]]) -> tuple[Matcher, ...]:
    """Raises `Invalid`. At least one: a silence of everything is asked for by name (`alert =~ .*`)."""
    try:
        matchers = msgspec.convert(list(values), tuple[Matcher, ...])
    except msgspec.ValidationError as error:
        raise Invalid({"matchers": str(error)}) from None
    if not 1 <= len(matchers) <= MAX_MATCHERS:
        raise Invalid({"matchers": f"One to {MAX_MATCHERS} matchers."})
    for matcher in matchers:
        if text := _wrong_matcher(matcher):
            raise Invalid({"matchers": text})
    return matchers


def _wrong_matcher(matcher: Matcher) -> str:
    if not _LABEL.fullmatch(matcher.label):
        return f"{matcher.label!r} is no name of a label."
    if len(matcher.value) > MAX_VALUE_CHARS or "\0" in matcher.value:
        return f"A value has at most {MAX_VALUE_CHARS} characters."
    if matcher.operator in ("=", "!="):
        return ""
    if not _PATTERN.fullmatch(matcher.value) or matcher.value.count(".*") > MAX_WILDCARDS:
        return f"A pattern is of words, “|”, “.” and at most {MAX_WILDCARDS} “.*”."
    return ""
