"""Which events somebody asks for: the same filters on the page, in the API and in exports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, time, timedelta, tzinfo

from django.db.models import CharField, F, Q, QuerySet, TextField, Value
from django.db.models.functions import Cast, Concat
from django.utils.dateparse import parse_date, parse_datetime

from tenants.models import AuditEvent

MAX_FILTER_CHARS = 100
MAX_WORDS = 8
SEARCHED = 10_000
"""Newest events that one search for words looks into: no index serves words behind row-level security, and
reading a million events takes seconds. Whoever asks goes on from where it ended."""
EQUAL = ("action", "outcome", "actor_type", "actor_id", "target_type", "target_id", "request_id", "trace_id")
_READ = (
    "actor_name",
    "target_name",
    "target_id",
    "action",
    "reason",
    "request_id",
    "tenant_name",
    "user_agent",
)


@dataclass(frozen=True, slots=True)
class Asked:
    """Filters as they were typed; empty ones let everything through."""

    q: str = ""
    """Words that all occur somewhere in an event, in any case."""
    action: str = ""
    outcome: str = ""
    actor_type: str = ""
    actor_id: str = ""
    target_type: str = ""
    target_id: str = ""
    request_id: str = ""
    trace_id: str = ""
    since: str = ""
    """A day (from its start) or an RFC 3339 time."""
    until: str = ""
    """A day (to its end) or an RFC 3339 time (exclusive)."""

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Asked:
        return cls(**{name: str(given.get(name, "")).strip()[:MAX_FILTER_CHARS] for name in FILTERS})

    def set_ones(self) -> dict[str, str]:
        return {name: value for name, value in asdict(self).items() if value}


FILTERS = tuple(Asked.__dataclass_fields__)


def matching(rows: QuerySet[AuditEvent], asked: Asked, zone: tzinfo = UTC) -> QuerySet[AuditEvent]:
    """What is no day and no time is ignored. Days begin in `zone`."""
    for name in EQUAL:
        if value := getattr(asked, name):
            rows = rows.filter(**{name: value})
    since, until = moment(asked.since, zone), moment(asked.until, zone, timedelta(days=1))
    if since is not None:
        rows = rows.filter(at__gte=since)
    if until is not None:
        rows = rows.filter(at__lt=until)
    return _with_words(rows, asked.q.split()[:MAX_WORDS])


def searched_to(rows: QuerySet[AuditEvent]) -> int | None:
    """`seq` of the oldest event that a search for words in `rows` looks into; None when that is all of them."""
    newest = rows.order_by("-seq").values_list("seq", flat=True)
    found = list(newest[SEARCHED - 1 : SEARCHED + 1])
    return found[0] if len(found) == 2 else None


def moment(text: str, zone: tzinfo, later: timedelta = timedelta()) -> datetime | None:
    """A time as it is, a day's start (`later` after it); None for neither, and beyond the calendar's end."""
    try:
        day = parse_date(text)
        if day is not None:
            return datetime.combine(day + later, time.min, tzinfo=zone)
        exact = parse_datetime(text)
    except (ValueError, OverflowError):
        return None
    return exact if exact is None or exact.tzinfo else exact.replace(tzinfo=zone)


def _with_words(rows: QuerySet[AuditEvent], words: list[str]) -> QuerySet[AuditEvent]:
    if not words:
        return rows
    blank = Value(" ")
    parts: list[F | Value | Cast] = []
    for name in _READ:
        parts += [F(name), blank]
    for name in ("before", "after", "ip"):
        parts += [Cast(name, TextField()), blank]
    rows = rows.alias(everything=Concat(*parts, output_field=CharField()))
    found = Q()
    for word in words:
        found &= Q(everything__icontains=word)
    return rows.filter(found)
