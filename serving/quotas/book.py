"""The quotas a gateway knows, and which of them bind a request."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import structlog

from serving.contract import QuotaEntry
from serving.quotas.holding import Holding
from serving.quotas.limits import Limit, strictness

log = structlog.get_logger("tidegate.quotas")


class Binding(tuple[Holding, ...]):
    """The limits that bind a request, the longest window first; all of them must allow it.

    It stands for one state of the configuration, so what is derived from it is kept with it.
    """

    template = b""
    """Header lines as `fields` writes them, with places for what changes at each answer."""
    until = 0.0
    """Unix seconds to which the template holds: the first window's end."""


NOTHING = Binding()


class Book:
    """Single writer (`update`), one thread. What a process holds of a limit outlives changes of its quota."""

    def __init__(self) -> None:
        self._holdings: dict[str, Holding] = {}
        self._by_tenant: dict[str, list[Holding]] = {}
        self._bindings: dict[tuple[str, str, str], Binding] = {}
        self._limited_as: Callable[[str], str] = str

    def update(
        self,
        entries: Iterable[QuotaEntry],
        zone_of: Callable[[str], str],
        limited_as: Callable[[str], str] = str,
    ) -> None:
        """`zone_of` says the time zone of a tenant by its id, `limited_as` of a key whose limits are its own."""
        self._limited_as = limited_as
        known, self._holdings = self._holdings, {}
        self._by_tenant.clear()
        self._bindings.clear()
        for entry in entries:
            holding = _renewed(known.get(entry.id), entry, _zone(zone_of(entry.tenant_id)))
            self._holdings[entry.id] = holding
            self._by_tenant.setdefault(entry.tenant_id, []).append(holding)

    def binding(self, tenant_id: str, key_id: str, model: str) -> Binding:
        """What binds a request; `NOTHING`, which is false, for a tenant without quotas."""
        own = self._by_tenant.get(tenant_id)
        if own is None:
            return NOTHING
        key = (tenant_id, key_id, model)
        found = self._bindings.get(key)
        if found is None:
            limited_as = self._limited_as(key_id)
            binds = [holding for holding in own if _binds(holding.limit.entry, limited_as, model)]
            found = self._bindings[key] = Binding(sorted(binds, key=lambda h: strictness(h.limit)))
        return found

    def __iter__(self) -> Iterator[Holding]:
        return iter(self._holdings.values())


def _renewed(known: Holding | None, entry: QuotaEntry, zone: ZoneInfo) -> Holding:
    if known is None:
        return Holding(Limit(entry, zone))
    if known.limit.entry != entry or known.limit.zone != zone:
        known.limit = Limit(entry, zone)
    return known


def _binds(entry: QuotaEntry, key_id: str, model: str) -> bool:
    return entry.key_id in (None, key_id) and entry.model in (None, model)


def _zone(name: str) -> ZoneInfo:
    """A zone this machine does not know counts as UTC: a budget that ends at another hour is better than none."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        log.warning("quotas.unknown_time_zone", time_zone=name)
        return ZoneInfo("UTC")
