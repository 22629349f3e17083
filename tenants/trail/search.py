"""Which events somebody asks for: the same filters on the page, in the API and in exports."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, time, timedelta, tzinfo

from django.db.models import QuerySet
from django.db.models.expressions import RawSQL
from django.utils.dateparse import parse_date, parse_datetime

from tenants.models import AuditEvent
from tenants.scoping import current_scope

MAX_FILTER_CHARS = 100
MAX_WORDS = 8
EQUAL = ("action", "outcome", "actor_type", "actor_id", "target_type", "target_id", "request_id", "trace_id")


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
    """Through the views of `tenants.rowsecurity.ProtectWords`, which know the scope.

    The index of words serves whoever sees every event. It holds the words of all: to a tenant the time it takes would
    tell how often others wrote a word. So a tenant's own lines are read, and nothing else (`|| ''` keeps it off).
    """
    ids = current_scope().tenant_ids
    if not words:
        return rows
    if ids is not None and not ids:
        return rows.none()
    typed = [f"%{_plain(word)}%" for word in words]
    if ids is None:
        like = " AND ".join(["text LIKE lower(%s)"] * len(words))
        statement, params = f"SELECT seq FROM tenants_auditwords_every WHERE {like}", typed  # noqa: S608
    else:
        own, like = ", ".join(["%s"] * len(ids)), " AND ".join(["text || '' LIKE lower(%s)"] * len(words))
        statement = f"SELECT seq FROM tenants_auditwords_own WHERE tenant_id IN ({own}) AND {like}"  # noqa: S608
        params = [*ids, *typed]
    return rows.filter(seq__in=RawSQL(statement, params))  # noqa: S611 - what was typed is among the parameters


def _plain(word: str) -> str:
    """So that nothing of it means anything in a pattern."""
    return re.sub(r"([\\%_])", r"\\\1", word)
