"""A quota as a gateway applies it: its kind, its account's name, its window now. Pure."""

from __future__ import annotations

from typing import NamedTuple
from zoneinfo import ZoneInfo

from serving.contract import QuotaEntry, QuotaResource
from serving.quotas import windows
from serving.quotas.account import BUDGET, INSIDE, RATE, Kind
from serving.quotas.windows import Span

PREFIX = "tidegate:quota:"
_ORDER = ("month", "day", "hour", "", "minute", "second")
_COLUMNS: dict[QuotaResource, int] = {
    "requests": 0,
    "tokens": 1,
    "device_us": 2,
    "cost_micro": 3,
    "concurrency": 0,
    "queue": 0,
}
_PARTS = {"device_us": "device-ms", "cost_micro": "cost", "queue": "waiting-requests"}
_SHOWN_UNITS = {"device_us": 1000.0, "cost_micro": 1_000_000.0}


class Amounts(NamedTuple):
    """What one request takes, or took. Inside is a request as long as it runs: one of `requests`."""

    requests: int
    tokens: int
    device_us: int
    cost_micro: int


class Limit:
    """One quota of one tenant. `span` is that of a budget, and moves on with time."""

    __slots__ = (
        "column",
        "entry",
        "is_hard",
        "is_leased",
        "kind",
        "name",
        "per_ms",
        "resource",
        "size",
        "span",
        "store_name",
        "value",
        "zone",
    )

    def __init__(self, entry: QuotaEntry, zone: ZoneInfo, prefix: str = "") -> None:
        """`prefix` goes before the name."""
        self.entry = entry
        self.zone = zone
        self.resource = entry.resource
        self.column = _COLUMNS[entry.resource]
        """Of `Amounts`."""
        self.value = entry.limit
        self.kind = _kind(entry)
        self.is_hard = not entry.observe_only
        self.is_leased = self.kind != BUDGET and self.is_hard
        """Whether a gateway may hold slack of it. Of a budget the last unit is given out one by one."""
        self.name = prefix + name_of(entry)
        self.store_name = store_name(entry.tenant_id, entry.id)
        self.per_ms = entry.limit / (windows.SECONDS[entry.window] * 1000) if self.kind == RATE else 0.0
        self.size = (entry.limit if entry.burst is None else entry.burst) if self.kind == RATE else 0
        self.span = Span(0, 0)

    def span_at(self, now: float) -> Span:
        """Of a budget: the window `now` (Unix seconds) lies in."""
        if self.kind == BUDGET and not self.span.start_s <= now < self.span.end_s:
            self.span = windows.span(now, self.entry.window, self.zone)
        return self.span

    @property
    def window_s(self) -> int:
        """Length of the window; 0 for what is inside at once."""
        if self.kind == BUDGET:
            return self.span.end_s - self.span.start_s
        return windows.SECONDS.get(self.entry.window, 0)

    def shown(self, amount: float) -> float:
        """An amount in the unit people read: device-milliseconds, currency units."""
        unit = _SHOWN_UNITS.get(self.resource)
        return amount if unit is None else amount / unit


def name_of(entry: QuotaEntry) -> str:
    """What headers, refusals and pages call it: `device-ms-per-day`, `key-requests-per-second`, …"""
    scope = ("key-" if entry.key_id else "") + ("model-" if entry.model else "")
    resource = _PARTS.get(entry.resource, entry.resource)
    return scope + (f"{resource}-per-{entry.window}" if entry.window else resource)


def store_name(tenant_id: str, quota_id: str) -> str:
    """The account's name in Valkey: those of a tenant lie together."""
    return f"{PREFIX}{{{tenant_id}}}:{quota_id}"


def strictness(limit: Limit) -> int:
    """Sorts the limits of a request: of several that refuse, the one that will for longest is named."""
    return _ORDER.index(limit.entry.window)


def _kind(entry: QuotaEntry) -> Kind:
    if entry.resource == "concurrency":
        return INSIDE
    return RATE if entry.window in windows.SECONDS else BUDGET
