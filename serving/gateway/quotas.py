"""Quotas on the life of a request: what it may take at most, what it took, what its client is told.

A request reserves when it is known how much it asks for, just before it is sent, and settles by what it really used.
"""

from __future__ import annotations

import time

from serving.contract import QuotaEntry
from serving.errors import DataPlaneError
from serving.gateway.deadlines import MAX_STREAM_S
from serving.gateway.dispatch import OnCovered
from serving.gateway.margins import Margins
from serving.gateway.pending import Payload, Pending
from serving.gateway.routing import Lane
from serving.gateway.snapshot import Grant, Snapshot
from serving.gateway.visit import Visit
from serving.prices import PARTS_PER_MICRO, PriceTable
from serving.quotas import fields
from serving.quotas.book import Binding
from serving.quotas.holding import Reservation
from serving.quotas.keeper import OnKnown, QuotaKeeper
from serving.quotas.limits import Amounts
from serving.wire import Stages

LONGEST_S, LONGEST_DEADLINES = MAX_STREAM_S + 60.0, 4
"""Longer than an answer or the end of a stream is waited for (`dispatch`): until then any price may bind."""
MAX_RESTS = 100_000


class Quotas:
    def __init__(self, keeper: QuotaKeeper, prices: PriceTable) -> None:
        self.keeper = keeper
        self._prices = prices
        self.margins = Margins()
        self._rests: dict[tuple[str, str, str], int] = {}

    def update(self, snapshot: Snapshot) -> None:
        """Quotas, tenants or models changed."""
        tenants = snapshot.tenants
        entries: list[QuotaEntry] = [e for e in snapshot.quotas.values() if e.tenant_id in tenants]
        keys = snapshot.keys

        def limited_as(key_id: str) -> str:
            key = keys.get(key_id)
            return key_id if key is None or key.first_id is None else key.first_id

        models = snapshot.models.values()
        self.keeper.book.update(entries, lambda tenant_id: tenants[tenant_id].time_zone, limited_as, models)

    # ------------------------------------------------------------ before

    def bind(self, visit: Visit, grant: Grant, lane: Lane) -> Binding | None:
        """The limits the visit is under, if any. The first lane of a visit says when none can be."""
        if not lane.is_limited:
            return None
        binding = visit.binding = self.keeper.book.binding(lane.tenant_id, grant.key.id, lane.asked_model)
        return binding

    def take(self, visit: Visit, binding: Binding, lane: Lane, payload: Payload) -> bool:
        """Reserve what is in hand; False where that takes an answer of the store. Raises the refusal."""
        visit.reservation = self.keeper.take(binding, self._at_most(lane, payload))
        return visit.reservation is not None

    def ask(self, binding: Binding, lane: Lane, payload: Payload, on_known: OnKnown) -> None:
        """Owed after `take` said False; `on_known` gets a reservation, which becomes its own, or the refusal."""
        self.keeper.ask(binding, self._at_most(lane, payload), on_known)

    def cover(self, pending: Pending, on_known: OnCovered) -> None:
        """Before a request in flight is tried again, what it used up already is reserved anew."""
        assert pending.payload is not None
        self.top_up(pending.reservation, pending.lane, pending.payload, on_known)

    def top_up(
        self, reservation: Reservation | None, lane: Lane, payload: Payload, on_known: OnCovered
    ) -> None:
        """Before another try, of a version that may cost more: `on_known` hears None, or why it may not be."""
        if reservation is None:
            on_known(None)
            return

        def known(outcome: Reservation | DataPlaneError) -> None:
            if isinstance(outcome, Reservation):
                reservation.absorb(outcome)
            on_known(None if isinstance(outcome, Reservation) else outcome)

        if self.keeper.top_up(reservation, self._at_most(lane, payload), known):
            on_known(None)

    async def reserve(self, visit: Visit, grant: Grant, lane: Lane, payload: Payload) -> None:
        """All of it. Raises the refusal."""
        binding = self.bind(visit, grant, lane)
        if binding is not None:
            visit.reservation = await self.keeper.reserve(binding, self._at_most(lane, payload))

    # ------------------------------------------------------------ after

    def settle(
        self, reservation: Reservation, pending: Pending, payload: Payload, stages: Stages, cost_parts: int
    ) -> None:
        """The request was answered, and cost so many of `serving.prices`' parts."""
        lane = pending.lane
        ratio = stages.device_us / lane.predict_us(payload.rows, payload.tokens)
        self.margins.learn(lane.version.id, ratio, time.time())
        used = Amounts(1, payload.tokens, stages.device_us, self._micro(_account(pending), cost_parts))
        reservation.settle(used)

    def add_late(self, pending: Pending, stages: Stages, cost_parts: int) -> None:
        """Device time of a try that was no answer: used all the same, of what its request reserved."""
        lane = pending.lane
        if pending.reservation is not None:
            used = Amounts(0, 0, stages.device_us, self._micro(_account(pending), cost_parts))
            if self.keeper.add(pending.reservation, used):
                return
        binding = self.keeper.book.binding(lane.tenant_id, pending.key_id, lane.asked_model)
        if binding is not None and stages.device_us:
            used = Amounts(0, 0, stages.device_us, self._micro(_account(pending), cost_parts))
            self.keeper.add_late(binding, used)

    @staticmethod
    def lines(binding: Binding) -> bytes:
        return fields.lines(binding, time.time())

    # ------------------------------------------------------------ estimates

    def _at_most(self, lane: Lane, payload: Payload) -> Amounts:
        version, now = lane.version, time.time()
        device_us = int(lane.predict_us(payload.rows, payload.tokens) * self.margins.of(version.id, now))
        until = now + LONGEST_S + LONGEST_DEADLINES * lane.deadline_s
        rates = self._prices.highest(version.model, version.price_micro_per_device_hour, now, until)
        parts = rates.answer_parts(device_us, payload.tokens)
        return Amounts(1, payload.tokens, device_us, -(-parts // PARTS_PER_MICRO))

    def _micro(self, account: tuple[str, str, str], parts: int) -> int:
        """Micro-units; as in the ledger the rest below one counts with the account's next request."""
        if len(self._rests) >= MAX_RESTS:
            self._rests.clear()
        micro, self._rests[account] = divmod(parts + self._rests.get(account, 0), PARTS_PER_MICRO)
        return micro


def _account(pending: Pending) -> tuple[str, str, str]:
    return pending.lane.tenant_id, pending.key_id, pending.lane.version.id
