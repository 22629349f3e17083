"""Quotas in headers: `RateLimit`, `RateLimit-Policy` (IETF draft-ietf-httpapi-ratelimit-headers), `x-ratelimit-*`. Pure.

The first two tell every limit that binds the request by its name; the others, which OpenAI's clients know, the
scarcest of those on requests and of those on tokens. An answer fills a template in, which is made once per window.
"""

from __future__ import annotations

import math
from functools import lru_cache
from math import ceil

from serving.quotas.account import BUDGET
from serving.quotas.book import Binding
from serving.quotas.limits import Limit

Pair = tuple[bytes, bytes]
_UNITS = {
    "tokens": ';qu="tokens"',
    "device_us": ';qu="device-ms"',
    "cost_micro": ';qu="micro-cost"',
    "concurrency": ';qu="concurrent-requests"',
}
_RESOURCES = ("requests", "tokens")
"""Those of `x-ratelimit-*`."""
_SCARCEST = b"x-ratelimit-limit-%b: %%d\r\nx-ratelimit-remaining-%b: %%d\r\nx-ratelimit-reset-%b: %%b\r\n"


def lines(binding: Binding, now: float) -> bytes:
    """Header lines of an answer or a refusal, as things stand at `now` (Unix seconds)."""
    if not len(binding):
        return b""
    if now >= binding.until:
        _prepare(binding, now)
    standings = [holding.standing(now) for holding in binding]
    values: list[int | bytes] = []
    for (remaining, reset_s), unit in zip(standings, binding.units):  # noqa: B905 - one each
        values += (remaining // unit, ceil(reset_s))
    for places in binding.scarce:
        place = places[0] if len(places) == 1 else _scarcest(binding, standings, places)
        remaining, reset_s = standings[place]
        values += (_most(binding[place].limit), remaining, duration(reset_s))
    return binding.template % tuple(values)


def _scarcest(binding: Binding, standings: list[tuple[int, float]], places: tuple[int, ...]) -> int:
    """Of limits on one resource that which has least left of what it gives."""

    def left(place: int) -> tuple[float, int, int, float]:
        most, (remaining, reset_s) = _most(binding[place].limit), standings[place]
        return remaining / most, most, remaining, reset_s

    return min(places, key=left)


def pairs(binding: Binding, now: float) -> list[Pair]:
    """The same as pairs of name and value."""
    found = (line.split(b": ", 1) for line in lines(binding, now).split(b"\r\n") if line)
    return [(name, value) for name, value in found]


def duration(seconds: float) -> bytes:
    """As OpenAI writes it: `12ms`, `1.5s`, `6m0s`, `23h59m59s`."""
    if seconds < 1:
        return _brief(ceil(seconds * 1000))
    return b"%gs" % round(seconds, 3) if seconds < 60 else _long(ceil(seconds))


@lru_cache(maxsize=1024)
def _brief(ms: int) -> bytes:
    return b"%dms" % ms


@lru_cache(maxsize=4096)
def _long(seconds: int) -> bytes:
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return b"%dh%dm%ds" % (hours, minutes, rest) if hours else b"%dm%ds" % (minutes, rest)


def _prepare(binding: Binding, now: float) -> None:
    """The template holds until the first window ends: months differ in length, and so do days."""
    ends = [holding.limit.span_at(now).end_s for holding in binding if holding.limit.kind == BUDGET]
    policies = ", ".join([_policy(holding.limit) for holding in binding])
    states = ", ".join([f'"{holding.limit.name}";r=%d;t=%d' for holding in binding])
    resources = {holding.limit.resource for holding in binding}
    head = f"ratelimit-policy: {policies}\r\nratelimit: {states}\r\n".encode()
    rest = [_SCARCEST % ((name.encode(),) * 3) for name in _RESOURCES if name in resources]
    binding.template = b"".join((head, *rest))
    binding.until = min(ends, default=math.inf)
    binding.units = tuple([_unit(holding.limit) for holding in binding])
    places = [
        tuple([place for place, holding in enumerate(binding) if holding.limit.resource == name])
        for name in _RESOURCES
    ]
    binding.scarce = tuple([found for found in places if found])


def _policy(limit: Limit) -> str:
    window = f";w={limit.window_s}" if limit.window_s else ""
    return f'"{limit.name}";q={_most(limit) // _unit(limit)}{window}{_UNITS.get(limit.resource, "")}'


def _unit(limit: Limit) -> int:
    """Whole numbers only: milliseconds rounded down, money in its micro-units."""
    return 1000 if limit.resource == "device_us" else 1


def _most(limit: Limit) -> int:
    """What the window gives; of a rate, what it gives at once."""
    return limit.size or limit.value
