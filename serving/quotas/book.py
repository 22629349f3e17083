"""The quotas a gateway knows, and which of them bind a request."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import structlog

from serving.contract import ModelEntry, QuotaEntry
from serving.quotas import pools
from serving.quotas.holding import Holding
from serving.quotas.limits import Limit, name_of, strictness
from serving.quotas.pools import Part

log = structlog.get_logger("tidegate.quotas")


class Binding(tuple[Holding, ...]):
    """The limits that bind a request, the longest window first; all of them must allow it.

    It stands for one state of the configuration, so what is derived from it is kept with it.
    """

    parts: tuple[Part, ...] = ()
    """Of what tenants share."""
    queue_shares: tuple[tuple[str, str, int], ...] = ()
    """What bounds how many may wait at a replica, for its worker: id, name, limit."""
    template = b""
    """Header lines as `fields` writes them, with places for what changes at each answer."""
    units: tuple[int, ...] = ()
    """What one of each limit is shown in."""
    scarce: tuple[tuple[int, ...], ...] = ()
    """Places of the limits on requests, and of those on tokens, where there are any."""
    until = 0.0
    """Unix seconds to which the template holds: the first window's end."""


class Book:
    """Single writer (`update`), one thread. What a process holds of a limit outlives changes of its quota."""

    def __init__(self) -> None:
        self._holdings: dict[str, Holding] = {}
        self._by_tenant: dict[str, list[Holding]] = {}
        self._queues: dict[str, list[QuotaEntry]] = {}
        """Quotas on what waits at replicas, by tenant: they have no account."""
        self._pools: dict[str, list[Holding]] = {}
        """By model."""
        self._owned: dict[tuple[str, str, str], Holding] = {}
        """Guarantees by tenant, model and resource."""
        self._bindings: dict[tuple[str, str, str], Binding | None] = {}
        self._limited_as: Callable[[str], str] = str

    def update(
        self,
        entries: Iterable[QuotaEntry],
        zone_of: Callable[[str], str],
        limited_as: Callable[[str], str] = str,
        models: Iterable[ModelEntry] = (),
    ) -> None:
        """`zone_of` says the time zone of a tenant by its id, `limited_as` of a key whose limits are its own."""
        self._limited_as = limited_as
        known, self._holdings = self._holdings, {}
        for derived in (self._by_tenant, self._bindings, self._pools, self._owned, self._queues):
            derived.clear()
        for entry in entries:
            if entry.resource == "queue":
                self._queues.setdefault(entry.tenant_id, []).append(entry)
                continue
            holding = self._keep_entry(known, entry, zone_of(entry.tenant_id))
            self._by_tenant.setdefault(entry.tenant_id, []).append(holding)
            own = pools.guarantee(entry)
            if own is not None and entry.model is not None:
                self._owned[entry.tenant_id, entry.model, entry.resource] = self._keep(known, own)
        for model in models:
            found = [self._keep(known, limit) for limit in pools.of_model(model)]
            if found:
                self._pools[model.name] = found

    def may_bind(self, tenant_id: str, model: str) -> bool:
        """Whether any request of the tenant for the model could be under a limit."""
        return tenant_id in self._by_tenant or model in self._pools or tenant_id in self._queues

    def binding(self, tenant_id: str, key_id: str, model: str) -> Binding | None:
        """What binds a request, if anything does."""
        if not self.may_bind(tenant_id, model):
            return None
        key = (tenant_id, key_id, model)
        if key not in self._bindings:
            self._bindings[key] = self._bind(*key)
        return self._bindings[key]

    def _bind(self, tenant_id: str, key_id: str, model: str) -> Binding | None:
        limited_as = self._limited_as(key_id)
        own = self._by_tenant.get(tenant_id, ())
        binds = [holding for holding in own if _binds(holding.limit.entry, limited_as, model)]
        binding = Binding(sorted(binds, key=lambda h: strictness(h.limit)))
        binding.parts = tuple(self._parts(tenant_id, model))
        queues = [entry for entry in self._queues.get(tenant_id, ()) if _binds(entry, limited_as, model)]
        binding.queue_shares = tuple([(entry.id, name_of(entry), entry.limit) for entry in queues])
        return binding if binding or binding.parts or queues else None

    def _parts(self, tenant_id: str, model: str) -> Iterator[Part]:
        for pool in self._pools.get(model, ()):
            yield Part(pool, self._owned.get((tenant_id, model, pool.limit.resource)))

    def _keep_entry(self, known: dict[str, Holding], entry: QuotaEntry, zone: str) -> Holding:
        """Most of the book is as it was at every update: what did not change is not looked at again."""
        holding = known.get(entry.id)
        if holding is None or holding.limit.entry is not entry or holding.limit.zone.key != zone:
            return self._keep(known, Limit(entry, _zone(zone)))
        self._holdings[entry.id] = holding
        return holding

    def _keep(self, known: dict[str, Holding], limit: Limit) -> Holding:
        holding = self._holdings[limit.entry.id] = _renewed(known.get(limit.entry.id), limit)
        return holding

    def __iter__(self) -> Iterator[Holding]:
        return iter(self._holdings.values())


def _renewed(known: Holding | None, limit: Limit) -> Holding:
    if known is None:
        return Holding(limit)
    if known.limit.entry != limit.entry or known.limit.zone != limit.zone:
        known.limit = limit
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
