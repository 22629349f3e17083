"""What a request costs: which price binds, from when, and exact sums of it.

Money is counted in *parts*: a micro-unit of the currency has `PARTS_PER_MICRO` of them, so that a microsecond at
any price per hour, a token and a request are all whole numbers of parts, and sums are exact however they are cut.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from serving.contract import PriceEntry

PARTS_PER_MICRO = 3_600_000_000
"""A microsecond at a price of one micro-unit per hour costs one part."""
PARTS_PER_UNIT = PARTS_PER_MICRO * 1_000_000
_PARTS_PER_TOKEN = PARTS_PER_MICRO // 1_000_000
_PARTS_PER_REQUEST = PARTS_PER_MICRO // 1_000

MINUTE_S = 60
"""Prices change at the start of a minute: every row of the ledger then has one price."""
Scope = tuple[str, str]
"""Model and device class; "" stands for all."""


class Rates(NamedTuple):
    """What binds at one moment. Tokens and requests are charged only when they were answered."""

    micro_per_device_hour: int = 0
    micro_per_million_tokens: int = 0
    micro_per_thousand_requests: int = 0

    def answer_parts(self, device_us: int, tokens: int) -> int:
        """Cost of one answered request, in parts."""
        per_hour, per_million, per_thousand = self
        parts = device_us * per_hour
        if per_million:
            parts += tokens * per_million * _PARTS_PER_TOKEN
        if per_thousand:
            parts += per_thousand * _PARTS_PER_REQUEST
        return parts

    def device_parts(self, device_us: int) -> int:
        """Cost of device time whose request was not answered, in parts."""
        return device_us * self.micro_per_device_hour


FREE = Rates()


class PriceLine:
    """The rates of one model on one device class as they follow each other."""

    __slots__ = ("_changes", "own_micro_per_device_hour", "rates", "since", "until")

    def __init__(self, changes: Iterable[tuple[float, Rates]], own_micro_per_device_hour: int = 0) -> None:
        """`changes`: Unix seconds from which rates hold, in order. Before the first nothing costs anything."""
        self.own_micro_per_device_hour = own_micro_per_device_hour
        """What they were made with: a request that began before its version's price changed keeps the old one."""
        self._changes = tuple(changes)
        self.since, self.until, self.rates = math.inf, -math.inf, FREE
        """The rates last asked for, and between which moments they hold."""

    def at(self, now: float) -> Rates:
        """`now` in Unix seconds."""
        if not self.since <= now < self.until:
            self._find(now)
        return self.rates

    def most(self, now: float, until: float) -> Rates:
        """The highest of what holds from `now` to `until` (Unix seconds), each rate by itself."""
        rates = self.at(now)
        if until < self.until:
            return rates
        later = [rates for since, rates in self._changes if now < since <= until]
        return Rates(*map(max, zip(rates, *later, strict=True)))

    def _find(self, now: float) -> None:
        self.since, self.rates, self.until = -math.inf, FREE, math.inf
        for since, rates in self._changes:
            if since > now:
                self.until = since
                break
            self.since, self.rates = since, rates


class PriceBook:
    """Every price that was published. The narrowest scope that has a price wins, then the newest one in it.

    Narrow to wide: model on a class, model, class, everything. A version's own price per device-hour, where it has
    one, takes the place of the book's; tokens and requests cost what the book says.
    """

    def __init__(self, entries: Iterable[PriceEntry] = ()) -> None:
        self._by_scope: dict[Scope, list[PriceEntry]] = {}
        for entry in sorted(entries, key=lambda entry: entry.effective_from):
            self._by_scope.setdefault((entry.model, entry.device_class), []).append(entry)

    def line(self, model: str, device_class: str, own_micro_per_device_hour: int = 0) -> PriceLine:
        scopes: tuple[Scope, ...] = ((model, device_class), (model, ""), ("", device_class), ("", ""))
        # A scope may be named twice where the class is not known.
        known = [self._by_scope[scope] for scope in dict.fromkeys(scopes) if scope in self._by_scope]
        moments = sorted({entry.effective_from for entries in known for entry in entries})
        changes = [(moment, _own(_rates(known, moment), own_micro_per_device_hour)) for moment in moments]
        begin = (-math.inf, _own(FREE, own_micro_per_device_hour))
        return PriceLine([begin, *changes], own_micro_per_device_hour)


class PriceTable:
    """The lines of all replicas, built when they are asked for. Not thread-safe; nothing here blocks."""

    def __init__(self) -> None:
        self._book = PriceBook()
        self._classes: dict[str, str] = {}
        self._lines: dict[str, PriceLine] = {}
        self._anywhere: dict[tuple[str, int], list[PriceLine]] = {}

    def set_prices(self, entries: Iterable[PriceEntry]) -> None:
        self._book = PriceBook(entries)
        self.forget_lines()

    def set_classes(self, classes: Mapping[str, str]) -> None:
        """Replica id → device class. One that is no longer wanted still answers what it has: it is kept a while."""
        if len(self._classes) > 8 * len(classes) + 1024:
            self._classes.clear()
        self._classes.update(classes)
        self.forget_lines()

    def forget_lines(self) -> None:
        """A version changed its own price."""
        self._lines.clear()
        self._anywhere.clear()

    def rates(self, replica_id: str, model: str, own_micro_per_device_hour: int, now: float) -> Rates:
        """What a request that this replica answers `now` (Unix seconds) costs."""
        line = self._lines.get(replica_id)
        if line is None or line.own_micro_per_device_hour != own_micro_per_device_hour:
            device_class = self._classes.get(replica_id, "")
            line = self._lines[replica_id] = self._book.line(model, device_class, own_micro_per_device_hour)
        # `at` without the call: this is asked once per request.
        return line.rates if line.since <= now < line.until else line.at(now)

    def highest(self, model: str, own_micro_per_device_hour: int, now: float, until: float) -> Rates:
        """The most a request of the model may cost between two moments, whichever class of device it runs on."""
        key = (model, own_micro_per_device_hour)
        lines = self._anywhere.get(key)
        if lines is None:
            classes = {"", *self._classes.values()}
            lines = [
                self._book.line(model, device_class, own_micro_per_device_hour) for device_class in classes
            ]
            self._anywhere[key] = lines
        if len(lines) == 1:
            return lines[0].most(now, until)
        return Rates(*map(max, zip(*(line.most(now, until) for line in lines), strict=True)))


def _rates(scopes: Iterable[list[PriceEntry]], moment: float) -> Rates:
    for entries in scopes:
        begun = [entry for entry in entries if entry.effective_from <= moment]
        if begun and not begun[-1].is_end:
            return Rates(
                begun[-1].micro_per_device_hour,
                begun[-1].micro_per_million_tokens,
                begun[-1].micro_per_thousand_requests,
            )
    return FREE


def _own(rates: Rates, own_micro_per_device_hour: int) -> Rates:
    if not own_micro_per_device_hour:
        return rates
    return rates._replace(micro_per_device_hour=own_micro_per_device_hour)
