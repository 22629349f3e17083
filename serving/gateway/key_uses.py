"""From where keys are used, and when one was used outside its rights: told to the control plane now and then.

A request costs nothing here as long as it is like those before it: usage hands over one request of each key every
two seconds. A misuse is told at once, and then once a minute for as long as it goes on, with how often.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from time import time
from typing import NamedTuple, Protocol

import structlog

from serving.contract import KeyMisuse, KeySeen, KeysReport, ReportBody
from serving.errors import Misuse
from serving.gateway.addresses import Address, Doorkeeper, origin_of
from serving.gateway.visit import Visit

log = structlog.get_logger("tidegate.gateway.key_uses")

QUIET_S = 60.0
"""Between two reports of the same misuse of the same key."""
ROWS_PER_REPORT = 500
MAX_MISUSES = 4096
"""Different ones that are remembered, of keys that are known."""
MAX_UNKNOWN = 512
"""The same of tokens that open nothing: whoever makes them up must not crowd out the others."""
MAX_TOLD = 20_000


class Outbox(Protocol):
    """`ReportOutbox`, as far as keys are concerned. Nothing blocks."""

    def put(self, body: KeysReport) -> None: ...

    def has_undelivered(self, kind: type[ReportBody]) -> bool: ...


class _Told(NamedTuple):
    row: KeySeen
    minute: int


class _Tally:
    """One misuse since it was last told. The facts of a request are copied: it is not to be kept alive for them."""

    __slots__ = ("address", "at", "count", "due", "request_id", "trace_id")

    def __init__(self) -> None:
        self.count = 0
        self.at = self.due = 0.0
        self.address = self.request_id = self.trace_id = ""

    def add(self, visit: Visit, address: Address | None) -> None:
        self.count += 1
        self.at = time()
        self.address = "" if address is None else str(address)
        self.request_id = visit.request_id
        self.trace_id = "" if visit.trace is None else visit.trace.trace_id

    def row(self, misuse: Misuse, now: float) -> KeyMisuse:
        row = KeyMisuse(
            key_id=misuse.key_id,
            reason=misuse.reason,
            count=self.count,
            at=self.at,
            tenant_id=misuse.tenant_id,
            detail=misuse.detail,
            digest=misuse.digest,
            address=self.address,
            request_id=self.request_id,
            trace_id=self.trace_id,
        )
        self.count, self.due = 0, now + QUIET_S
        return row


class KeyUses:
    """`seen` and `misused` while requests are served, `flush` every two seconds."""

    def __init__(self, outbox: Outbox, door: Doorkeeper) -> None:
        self._outbox = outbox
        self._door = door
        self._seen: dict[str, KeySeen] = {}
        self._told: dict[str, _Told] = {}
        self._misuses: dict[Misuse, _Tally] = {}
        self._unknown: dict[Misuse, _Tally] = {}
        self._left_out = 0

    def seen(self, visit: Visit) -> None:
        """A request of a known key was counted."""
        grant = visit.grant
        if grant is not None:
            address = self._door.address_of(visit.peer, visit.headers)
            key_id = grant.key.id
            address_class, network = origin_of(address)
            self._seen[key_id] = KeySeen(
                key_id=key_id, tenant_id=grant.tenant.id, address_class=address_class, network=network
            )

    def misused(self, visit: Visit, misuse: Misuse) -> None:
        """A request was refused for what its key may not do."""
        is_unknown = misuse.reason == "credential"
        tallies = self._unknown if is_unknown else self._misuses
        tally = tallies.get(misuse)
        if tally is None:
            if len(tallies) >= (MAX_UNKNOWN if is_unknown else MAX_MISUSES):
                self._left_out += 1
                return
            tally = tallies[misuse] = _Tally()
        tally.add(visit, self._door.address_of(visit.peer, visit.headers))

    def flush(self, now: float) -> None:
        """Tell what is due, unless what was told before is still on its way. `now` is Unix time."""
        if self._outbox.has_undelivered(KeysReport):
            return
        seen, misused = self._taken_seen(now), self._taken_misuses(now)
        if seen or misused:
            self._outbox.put(KeysReport(at=now, seen=tuple(seen), misused=tuple(misused)))
        if self._left_out:
            log.warning("keys.misuse_not_told", requests=self._left_out)
            self._left_out = 0

    def _taken_seen(self, now: float) -> list[KeySeen]:
        """Those in another place than a minute ago, or not told of for so long: last use is exact to a minute."""
        minute = int(now) // 60
        rows = [self._seen.pop(key_id) for key_id in list(islice(self._seen, ROWS_PER_REPORT))]
        news = [row for row in rows if self._told.get(row.key_id) != _Told(row, minute)]
        if len(self._told) > MAX_TOLD:
            self._told.clear()
        self._told.update((row.key_id, _Told(row, minute)) for row in news)
        return news

    def _taken_misuses(self, now: float) -> list[KeyMisuse]:
        return list(islice(chain(_due(self._misuses, now), _due(self._unknown, now)), ROWS_PER_REPORT))


def _due(tallies: dict[Misuse, _Tally], now: float) -> Iterator[KeyMisuse]:
    """Each that is told is quiet for a while; what did not happen again in that time is forgotten."""
    for misuse, tally in list(tallies.items()):
        if now < tally.due:
            continue
        if tally.count:
            yield tally.row(misuse, now)
        else:
            del tallies[misuse]
