"""Which hour, day or month it is in a tenant's time zone, and when it ends. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

from serving.contract import QuotaWindow

CALENDAR: tuple[QuotaWindow, ...] = ("hour", "day", "month")
SECONDS: dict[QuotaWindow, int] = {"second": 1, "minute": 60}


class Span(NamedTuple):
    """Unix seconds, from and until (excluded)."""

    start_s: int
    end_s: int


def span(now: float, window: QuotaWindow, zone: ZoneInfo) -> Span:
    """The calendar window that `now` (Unix seconds) lies in.

    Days and months begin at local midnight, so a day that the clocks change in has 23 or 25 hours. Hours are those of
    the wall clock: where a zone is half an hour off, so are they.
    """
    local = datetime.fromtimestamp(now, zone)
    if window == "hour":
        past_s = local.minute * 60 + local.second
        start_s = int(now) - past_s
        return Span(start_s, start_s + 3600)
    start = local.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
    if window == "day":
        return Span(_unix(start), _unix(start + timedelta(days=1)))
    start = start.replace(day=1)
    after = (start + timedelta(days=32)).replace(day=1)
    return Span(_unix(start), _unix(after))


def _unix(moment: datetime) -> int:
    return int(moment.timestamp())
