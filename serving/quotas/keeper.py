"""What a gateway asks whether a request may pass its quotas.

What is in hand is taken at once. Everything else is asked of the store, all that came up in one turn of the event
loop together, and one question at a time: so what a process says of itself is never older than what it said before.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from time import monotonic
from typing import NamedTuple, Protocol

import structlog

from serving.errors import DataPlaneError
from serving.quotas import pools
from serving.quotas.account import Batch, Verdicts
from serving.quotas.book import Binding, Book
from serving.quotas.holding import Holding, Reservation
from serving.quotas.limits import Amounts
from serving.quotas.local import LocalAccounts
from serving.quotas.pools import Pairs
from serving.quotas.refusals import refused, unavailable

log = structlog.get_logger("tidegate.quotas")

TICK_S = 0.05
RENEW_S = 1.5
LEASE_MS = 5000
"""What a process held is free again so long after it was last heard of."""
FRESH_S = 2.0
"""Slack is used only so long after the last tick, which had the store told of it: well within the lease."""
PROBE_S = 0.5
"""While the store is away it is asked so often whether it is back."""
MAX_REQUESTS = 512
WAIT_S = 0.01
MAX_WAITS = 100
"""How often a request waits for slack of other gateways: they give it back at their next tick."""

OnKnown = Callable[[Reservation | DataPlaneError], None]
"""Called once, from the event loop; it must not raise."""


class StoreAway(Exception):
    """The store cannot be asked now."""


class AccountStore(Protocol):
    async def take(self, names: list[str], batch: Batch) -> Verdicts:
        """Carry out a batch, `names` being those of its asks' accounts. Raises `StoreAway`."""
        ...

    async def close(self) -> None: ...


class _Waiting(NamedTuple):
    pairs: Pairs
    on_known: OnKnown
    waits: int = 0


class _Sent(NamedTuple):
    holdings: list[Holding]
    waiting: list[_Waiting]
    batch: Batch
    at: float
    """Monotonic seconds."""

    @property
    def names(self) -> list[str]:
        return [holding.limit.store_name for holding in self.holdings]


class QuotaKeeper:
    """Needs a running event loop from the first request on."""

    def __init__(self, store: AccountStore | None, process: str, *, fails_open: bool, share: float) -> None:
        """`share` is this gateway's part of every limit while the store is away and requests pass all the same."""
        self.book = Book()
        self._store = store
        self._process = process
        self._turn = 0
        self._fails_open = fails_open
        self._local = LocalAccounts(share)
        self._waiting: list[_Waiting] = []
        self._active: set[Holding] = set()
        """Whoever may have something to say at the next tick."""
        self._due: set[Holding] = set()
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._renew_at = 0.0
        self._fresh_until = 0.0
        self._probe_at = 0.0
        self.is_away = False
        self._was_lost = False
        self._is_closing = False

    # ------------------------------------------------------------ requests

    def take(self, binding: Binding, needed: Amounts) -> Reservation | None:
        """What is in hand; None where the store has to be asked (`ask`). Raises a refusal that is known."""
        own = pairs = tuple([(holding, needed[holding.limit.column]) for holding in binding])
        if monotonic() > self._fresh_until or self.is_away:
            for holding in binding:
                holding.drop_slack()
        for holding, amount in pairs:
            if holding.slack < amount and not holding.may_take(amount):
                if holding.is_used_up(time.time()):
                    raise refused(holding, amount, time.time())
                return None
        if binding.parts:
            shared = self._take_shared(binding, needed)
            if shared is None:
                return None
            pairs += shared
        for holding, amount in own:
            holding.take(amount)
        self._active.update(binding)
        if self._timer is None:
            self._start_ticking()
        return Reservation(pairs)

    def ask(self, binding: Binding, needed: Amounts, on_known: OnKnown) -> None:
        """`on_known` gets the reservation, or the refusal."""
        pairs = [(holding, needed[holding.limit.column]) for holding in binding]
        self._queue(_Waiting(pairs + pools.to_ask(binding.parts, needed), on_known))

    async def reserve(self, binding: Binding, needed: Amounts) -> Reservation:
        """`take` or `ask`. Raises the refusal."""
        at_once = self.take(binding, needed)
        if at_once is not None:
            return at_once
        known: asyncio.Future[Reservation | DataPlaneError] = asyncio.get_running_loop().create_future()
        self.ask(binding, needed, lambda outcome: _hand_over(known, outcome))
        try:
            outcome = await known
        except asyncio.CancelledError:
            if known.done() and not known.cancelled():  # answered in the very turn that cancelled the task
                _give_back(known.result())
            raise
        if isinstance(outcome, DataPlaneError):
            raise outcome
        return outcome

    def _take_shared(self, binding: Binding, needed: Amounts) -> tuple[tuple[Holding, int], ...] | None:
        pairs = pools.in_hand(binding.parts, needed)
        if pairs is None:
            return None
        for holding, amount in pairs:
            holding.take(amount)
            self._active.add(holding)
        return tuple(pairs)

    def top_up(self, reservation: Reservation, needed: Amounts, on_known: OnKnown) -> bool:
        """Whether another try is covered by what is left; if not, `on_known` gets what was reserved besides, or
        the refusal.
        """
        missing = reservation.missing(needed)
        if missing:
            self._queue(_Waiting(missing, on_known))
        return not missing

    def add(self, reservation: Reservation, used: Amounts) -> bool:
        """What a try used that was not the answer; False where nothing is reserved for it any more."""
        self._wake(reservation.holdings())
        return reservation.add(used)

    def add_late(self, binding: Binding, used: Amounts) -> None:
        """What a request used that reserved nothing: its limits are younger than itself."""
        for holding in binding:
            holding.settle(0, used[holding.limit.column])
        self._wake(binding)

    def _wake(self, holdings: Iterable[Holding]) -> None:
        """They have something to say at the next tick."""
        self._active.update(holdings)
        if self._timer is None:
            self._start_ticking()

    async def close(self) -> None:
        """Give back what is held, as far as the store is there."""
        self._is_closing = True
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
        if self._store is None:
            return
        for holding in self._active:
            holding.slack = 0
        sent = self._compose([], list(self._active))
        try:
            if not self.is_away and sent.holdings:
                await self._store.take(sent.names, sent.batch)
        except StoreAway:
            log.info("quotas.left_to_their_leases", limits=len(sent.holdings))
        await self._store.close()

    # ------------------------------------------------------------ exchange

    def _queue(self, waiting: _Waiting) -> None:
        self._waiting.append(waiting)
        if len(self._waiting) == 1 and (self._task is None or self.is_away):
            asyncio.get_running_loop().call_soon(self._begin)
        if self._timer is None:
            self._start_ticking()

    def _begin(self) -> None:
        """Send what waits, and what is due, unless an answer is still out: it begins the next."""
        if self.is_away or self._store is None:
            self._go_without()
            return
        if self._task is not None or not (self._waiting or self._due):
            return
        waiting, self._waiting = self._waiting[:MAX_REQUESTS], self._waiting[MAX_REQUESTS:]
        due, self._due = self._due, set()
        sent = self._compose(waiting, list(due))
        self._task = asyncio.get_running_loop().create_task(self._exchange(self._store, sent))

    def _compose(self, waiting: list[_Waiting], due: list[Holding]) -> _Sent:
        wanted: dict[Holding, int] = dict.fromkeys(due, 0)
        for request in waiting:
            for holding, amount in request.pairs:
                wanted[holding] = max(wanted.get(holding, 0), abs(amount))
        now = time.time()
        index = {holding: at for at, holding in enumerate(wanted)}
        asks = [holding.ask(now, amount) for holding, amount in wanted.items()]
        requests = [[(index[holding], amount) for holding, amount in r.pairs] for r in waiting]
        self._turn += 1
        batch = Batch(self._process, LEASE_MS, asks, requests, self._turn)
        return _Sent(list(wanted), waiting, batch, monotonic())

    async def _exchange(self, store: AccountStore, sent: _Sent) -> None:
        try:
            verdicts = await store.take(sent.names, sent.batch)
        except StoreAway as error:
            self._lose_store(str(error))
            self._decide_locally(sent)
        except Exception:  # a task's top: whatever went wrong, nobody is left waiting
            log.exception("quotas.question_failed")
            self._lose_store("the question failed")
            self._decide_locally(sent)
        else:
            if monotonic() - sent.at > FRESH_S:
                self._ask_again(sent)
            elif verdicts.is_whole:
                self._apply(sent, verdicts)
            else:
                self._lose_accounts()
                self._decide_locally(sent)
        finally:
            self._task = None
            if self._timer is None and not self._is_closing:
                self._start_ticking()  # whatever came of it: who waits is seen to, and a lost store is asked again
        self._begin()

    def _apply(self, sent: _Sent, verdicts: Verdicts) -> None:
        now = time.time()
        if self._was_lost or self.is_away:
            log.info("quotas.store_is_back")
            self._was_lost = self.is_away = False
            self._local.clear()
        for holding, ask, view in zip(sent.holdings, sent.batch.asks, verdicts.views, strict=True):
            if holding.heard(ask, view, now):
                self._due.add(holding)  # the next question follows at once
            if view.extra:  # whatever comes of the request: what is in hand is renewed, or goes back
                self._active.add(holding)
        self._answer(sent, verdicts.results, now)

    def _ask_again(self, sent: _Sent) -> None:
        """This process stood still before it read the answer: what that gave may be somebody else's by now."""
        for holding in sent.holdings:
            holding.missed()
        self._active.update(sent.holdings)
        self._waiting = sent.waiting + self._waiting

    def _answer(self, sent: _Sent, results: list[int], now: float) -> None:
        for request, result in zip(sent.waiting, results, strict=True):
            if result == 0:
                self._receive(request)
            elif result < 0 and request.waits < MAX_WAITS:
                again = request._replace(waits=request.waits + 1)
                asyncio.get_running_loop().call_later(WAIT_S, self._queue, again)
            else:
                self._refuse(request, abs(result) - 1, now)

    def _receive(self, request: _Waiting) -> None:
        for holding, amount in request.pairs:
            holding.receive(abs(amount), is_owed=amount < 0)
            self._active.add(holding)
        request.on_known(Reservation(tuple([(holding, abs(amount)) for holding, amount in request.pairs])))

    def _refuse(self, request: _Waiting, place: int, now: float) -> None:
        """Beyond its guarantee a request asks once more, for what it may borrow."""
        instead = pools.borrowed(request.pairs, place)
        if instead is None:
            request.on_known(refused(*request.pairs[place], now))
        else:
            self._queue(request._replace(pairs=instead))

    # ------------------------------------------------------------ time

    def _start_ticking(self) -> None:
        self._fresh_until = monotonic() + FRESH_S
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def _drop_slack(self) -> None:
        for holding in self._active:
            holding.drop_slack()

    def _tick(self) -> None:
        now = monotonic()
        if now > self._fresh_until:
            self._drop_slack()
        is_renewal = now >= self._renew_at
        if is_renewal:
            self._renew_at = now + RENEW_S
        for holding in list(self._active):
            if holding.tick() or (is_renewal and holding.promised):
                self._due.add(holding)
            elif not holding.promised:
                self._active.discard(holding)
        if self.is_away:
            self._probe(now)
        elif self._due or self._waiting:
            self._begin()
        if self._active or self._waiting or self.is_away:
            self._start_ticking()
        else:
            self._timer = None

    # ------------------------------------------------------------ without the store

    def _probe(self, now: float) -> None:
        if self._store is None or self._task is not None or now < self._probe_at:
            return
        self._probe_at = now + PROBE_S
        sent = self._compose([], list(self._due))
        self._due.clear()
        self._task = asyncio.get_running_loop().create_task(self._exchange(self._store, sent))

    def _go_without(self) -> None:
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._decide_locally(self._compose(waiting, []))

    def _decide_locally(self, sent: _Sent) -> None:
        """By this gateway's part of each limit, or not at all."""
        now = time.time()
        for holding in sent.holdings:
            holding.missed()
            self._active.add(holding)
        if self._fails_open:
            self._answer(sent, self._local.take(sent.holdings, sent.batch, now), now)
        else:
            for request in sent.waiting:
                request.on_known(unavailable())

    def _lose_store(self, reason: str) -> None:
        if not self.is_away:
            log.warning("quotas.store_is_away", reason=reason, fails_open=self._fails_open)
        self._go_away()

    def _lose_accounts(self) -> None:
        if not self._was_lost:
            log.warning("quotas.accounts_were_lost", fails_open=self._fails_open)
            self._was_lost = True
            for holding in self.book:
                holding.was_lost()
        self._go_away()

    def _go_away(self) -> None:
        self.is_away = True
        self._probe_at = monotonic() + PROBE_S
        self._drop_slack()


def _hand_over(
    known: asyncio.Future[Reservation | DataPlaneError], outcome: Reservation | DataPlaneError
) -> None:
    if not known.done():
        known.set_result(outcome)
    else:
        _give_back(outcome)  # the task that waited was cancelled


def _give_back(outcome: Reservation | DataPlaneError) -> None:
    if isinstance(outcome, Reservation):
        outcome.release()
