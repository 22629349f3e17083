"""Quotas in headers: `RateLimit`, `RateLimit-Policy` (IETF draft-ietf-httpapi-ratelimit-headers), `x-ratelimit-*`. Pure.

The first two tell every limit that binds the request by its name; the others, which OpenAI's clients know, the
scarcest of those on requests and of those on tokens.
"""

from __future__ import annotations

import math

from serving.quotas.account import BUDGET
from serving.quotas.book import Binding
from serving.quotas.holding import Holding
from serving.quotas.limits import Limit

Pair = tuple[bytes, bytes]
_UNITS = {
    "tokens": ';qu="tokens"',
    "device_us": ';qu="device-ms"',
    "cost_micro": ';qu="micro-cost"',
    "concurrency": ';qu="concurrent-requests"',
}
_PER_RESOURCE = (
    (
        "requests",
        b"x-ratelimit-limit-requests",
        b"x-ratelimit-remaining-requests",
        b"x-ratelimit-reset-requests",
    ),
    ("tokens", b"x-ratelimit-limit-tokens", b"x-ratelimit-remaining-tokens", b"x-ratelimit-reset-tokens"),
)


def pairs(binding: Binding, now: float) -> list[Pair]:
    """Header fields of an answer or a refusal, as things stand at `now` (Unix seconds)."""
    standing = [(holding, holding.remaining(now), holding.reset_s(now)) for holding in binding]
    found: list[Pair] = [
        (b"ratelimit-policy", ", ".join([_policy(holding, now) for holding in binding]).encode()),
        (b"ratelimit", ", ".join([_state(*known) for known in standing]).encode()),
    ]
    for resource, limit_name, remaining_name, reset_name in _PER_RESOURCE:
        own = [known for known in standing if known[0].limit.resource == resource]
        if own:
            holding, remaining, reset_s = min(own, key=_scarcity)
            found += (
                (limit_name, b"%d" % _most(holding.limit)),
                (remaining_name, b"%d" % remaining),
                (reset_name, duration(reset_s).encode()),
            )
    return found


def lines(binding: Binding, now: float) -> bytes:
    """The same as header lines."""
    return b"".join([b"%b: %b\r\n" % pair for pair in pairs(binding, now)])


def duration(seconds: float) -> str:
    """As OpenAI writes it: `12ms`, `1.5s`, `6m0s`, `23h59m59s`."""
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    if seconds < 60:
        return f"{round(seconds, 3):g}s"
    minutes, rest = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes}m{rest}s" if hours else f"{minutes}m{rest}s"


def _policy(holding: Holding, now: float) -> str:
    limit = holding.limit
    limit.span_at(now)
    window = f";w={limit.window_s}" if limit.window_s else ""
    return f'"{limit.name}";q={_shown(limit, _most(limit))}{window}{_UNITS.get(limit.resource, "")}'


def _state(holding: Holding, remaining: int, reset_s: float) -> str:
    shown = _shown(holding.limit, remaining)
    return f'"{holding.limit.name}";r={shown};t={math.ceil(reset_s)}'


def _shown(limit: Limit, amount: int) -> int:
    """Whole numbers only: milliseconds rounded down, money in its micro-units."""
    return amount // 1000 if limit.resource == "device_us" else amount


def _most(limit: Limit) -> int:
    """What the window gives; of a rate, what it gives at once."""
    return limit.value if limit.kind == BUDGET or not limit.size else limit.size


def _scarcity(known: tuple[Holding, int, float]) -> float:
    holding, remaining, _ = known
    return remaining / max(1, _most(holding.limit))
