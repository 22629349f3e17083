"""Recorded arrivals for the simulator: JSON lines, one request each, in any order.

    {"at_s": 0.0125, "tenant": "chat", "sla_class": "interactive", "tokens": 12, "target_s": 0.05}

`at_s` counts from the start of the recording; `target_s`, `deadline_s` and `weight` are the profile's and may
be left out. All requests of one tenant in one class are one traffic; the last line's profile holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from serving.contract import SlaClass
from serving.scheduling.simulate import Traffic

MOST_TOKENS = 1 << 24


class Arrival(msgspec.Struct, kw_only=True):
    at_s: float
    tenant: str
    sla_class: SlaClass
    tokens: int = 1
    target_s: float = 0.2
    deadline_s: float = 60.0
    weight: float = 1.0


class BadTrace(ValueError):
    """A line that is not an arrival, with its number."""


_decode = msgspec.json.Decoder(Arrival).decode


def read(lines: Iterable[str | bytes]) -> list[Traffic]:
    """Open-loop traffics that replay the recording. Raises `BadTrace`."""
    by_tenant: dict[tuple[str, SlaClass], list[Arrival]] = {}
    for number, line in enumerate(lines, start=1):
        if line.strip():
            arrival = _arrival(number, line)
            by_tenant.setdefault((arrival.tenant, arrival.sla_class), []).append(arrival)
    if not by_tenant:
        raise BadTrace("no arrivals")
    return [_traffic(arrivals) for arrivals in by_tenant.values()]


def _arrival(number: int, line: str | bytes) -> Arrival:
    try:
        arrival = _decode(line)
    except msgspec.DecodeError as error:
        raise BadTrace(f"line {number}: {error}") from error
    if arrival.at_s < 0.0 or arrival.tokens < 1 or arrival.weight <= 0.0:
        raise BadTrace(f"line {number}: at_s, tokens and weight are positive")
    if arrival.target_s <= 0.0 or arrival.deadline_s <= 0.0 or arrival.tokens > MOST_TOKENS:
        raise BadTrace(f"line {number}: target_s and deadline_s are positive, tokens at most {MOST_TOKENS}")
    return arrival


def _traffic(arrivals: list[Arrival]) -> Traffic:
    profile = arrivals[-1]
    arrivals = sorted(arrivals, key=lambda each: each.at_s)
    sizes = iter([each.tokens for each in arrivals])
    return Traffic(
        profile.tenant,
        profile.sla_class,
        lambda: next(sizes),
        gaps=_gaps(arrivals),
        target_s=profile.target_s,
        deadline_s=profile.deadline_s,
        weight=profile.weight,
        max_queue=1 << 30,
    )


def _gaps(arrivals: list[Arrival]) -> Iterator[float]:
    before = 0.0
    for arrival in arrivals:
        yield arrival.at_s - before
        before = arrival.at_s
