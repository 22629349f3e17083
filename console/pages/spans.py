"""Which span of time a page is about: one of the named ones up to now, or two moments, out of the address."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime

from django.http import QueryDict
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.timezone import is_naive, make_aware
from django.utils.translation import gettext_lazy

SPANS_S = {"15m": 900, "1h": 3600, "6h": 21_600, "24h": 86_400, "7d": 604_800}
"""The same as those of the charts (`static/past.js`)."""
SPAN_WORDS = {
    "15m": gettext_lazy("15 min"),
    "1h": gettext_lazy("1 h"),
    "6h": gettext_lazy("6 h"),
    "24h": gettext_lazy("24 h"),
    "7d": gettext_lazy("7 d"),
}
DEFAULT = "24h"
MIN_SPAN_S, MAX_SPAN_S = 60.0, 400 * 86_400.0


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """Unix seconds. `name` is empty for two moments somebody chose."""

    name: str
    since: float
    until: float

    @property
    def seconds(self) -> float:
        return self.until - self.since

    @property
    def first(self) -> datetime:
        return _local(self.since)

    @property
    def last(self) -> datetime:
        return _local(self.until)


def span_of(query: QueryDict, now: float | None = None) -> TimeSpan:
    """`?range=6h`, or `?since=…&until=…` in Unix seconds or local times. What is no span is the default one."""
    now = time.time() if now is None else now
    since, until = _moment(query.get("since", "")), _moment(query.get("until", ""))
    if since is not None and until is not None and MIN_SPAN_S <= min(until, now) - since <= MAX_SPAN_S:
        return TimeSpan("", since, min(until, now))
    name = query.get("range", "")
    name = name if name in SPANS_S else DEFAULT
    return TimeSpan(name, now - SPANS_S[name], now)


def _moment(text: str) -> float | None:
    if text.isascii() and text.isdigit() and len(text) <= 10:
        return float(text)
    try:
        found = parse_datetime(text[:40])
        if found is None:
            return None
        return (make_aware(found) if is_naive(found) else found).timestamp()
    except (ValueError, OverflowError):
        return None


def _local(at_s: float) -> datetime:
    return timezone.localtime(datetime.fromtimestamp(at_s, timezone.get_current_timezone()))
