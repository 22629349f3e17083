"""Quotas in headers: `RateLimit`, `RateLimit-Policy` (IETF draft-ietf-httpapi-ratelimit-headers), `x-ratelimit-*`. Pure.

The first two tell every limit that binds the request by its name; the others, which OpenAI's clients know, the
scarcest of those on requests and of those on tokens. An answer fills a template in, which is made once per window.
"""

from __future__ import annotations

import math

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
_NEVER = math.inf


def lines(binding: Binding, now: float) -> bytes:
    """Header lines of an answer or a refusal, as things stand at `now` (Unix seconds)."""
    if not len(binding):
        return b""
    if now >= binding.until:
        _prepare(binding, now)
    values: list[int | bytes] = []
    scarcest: dict[str, tuple[float, int, int, float]] = {}
    for holding in binding:
        remaining, reset_s = holding.standing(now)
        limit = holding.limit
        values += (_shown(limit, remaining), math.ceil(reset_s))
        if limit.resource in _RESOURCES:
            most = limit.size or limit.value
            known = (remaining / most, most, remaining, reset_s)
            before = scarcest.get(limit.resource)
            if before is None or known < before:
                scarcest[limit.resource] = known
    for resource in _RESOURCES:
        found = scarcest.get(resource)
        if found is not None:
            values += (found[1], found[2], duration(found[3]))
    return binding.template % tuple(values)


def pairs(binding: Binding, now: float) -> list[Pair]:
    """The same as pairs of name and value."""
    found = (line.split(b": ", 1) for line in lines(binding, now).split(b"\r\n") if line)
    return [(name, value) for name, value in found]


def duration(seconds: float) -> bytes:
    """As OpenAI writes it: `12ms`, `1.5s`, `6m0s`, `23h59m59s`."""
    if seconds < 1:
        return b"%dms" % math.ceil(seconds * 1000)
    if seconds < 60:
        return f"{round(seconds, 3):g}s".encode()
    minutes, rest = divmod(math.ceil(seconds), 60)
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
    binding.until = min(ends, default=_NEVER)


def _policy(limit: Limit) -> str:
    window = f";w={limit.window_s}" if limit.window_s else ""
    return f'"{limit.name}";q={_shown(limit, _most(limit))}{window}{_UNITS.get(limit.resource, "")}'


def _shown(limit: Limit, amount: int) -> int:
    """Whole numbers only: milliseconds rounded down, money in its micro-units."""
    return amount // 1000 if limit.resource == "device_us" else amount


def _most(limit: Limit) -> int:
    """What the window gives; of a rate, what it gives at once."""
    return limit.size or limit.value
