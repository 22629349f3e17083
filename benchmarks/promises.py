"""What Tidegate promises of its speed, against what was measured: the bounds, and whether they were kept."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from benchmarks.cases import GREEDY_RATE, OPEN_RATES, WEIGHTS
from benchmarks.results import Results, middle

OURS, BF16 = "tidegate", "tidegate bf16"
_OPEN_BOUNDS = dict(zip(OPEN_RATES, (0.37, 0.25), strict=True))


class Promise(msgspec.Struct, kw_only=True):
    """`measured` is NaN when nothing was measured."""

    what: str
    measured: float
    bound: float
    is_at_most: bool = False

    @property
    def is_kept(self) -> bool:
        return self.measured <= self.bound if self.is_at_most else self.measured >= self.bound


def promises(results: Results) -> list[Promise]:
    """Only those whose cases were played."""
    every = [
        *_closed(results),
        *_bf16(results),
        *_open(results),
        *_contended(results),
        *_shares(results),
        *_overload(results),
        *_simulated(results),
        *_echo(results),
        *_decisions(results),
    ]
    return [each for each in every if each.measured == each.measured]


def _at_least(what: str, measured: float, bound: float) -> Promise:
    return Promise(what=what, measured=measured, bound=bound)


def _at_most(what: str, measured: float, bound: float) -> Promise:
    return Promise(what=what, measured=measured, bound=bound, is_at_most=True)


def _closed(results: Results) -> Iterator[Promise]:
    for texts, of_peer, of_raw in (("short", 1.4, 0.97), ("mixed", 2.1, 0.95)):
        case = f"closed64 {texts}"
        ours = results.total(OURS, case)
        yield _at_least(f"{case}: answers/s ÷ best peer", ours / results.best_peer_total(case), of_peer)
        yield _at_least(f"{case}: answers/s ÷ raw limit", ours / results.limit(texts), of_raw)


def _bf16(results: Results) -> Iterator[Promise]:
    for texts, bound in (("short", 2.4), ("mixed", 3.7)):
        case = f"closed64 {texts}"
        ratio = results.total(BF16, case) / results.best_peer_total(case)
        yield _at_least(f"{case}, bf16: answers/s ÷ best peer (fp32)", ratio, bound)
    cosines = [each.least_cosine for each in results.agreements]
    yield _at_least("bf16: least cosine to fp32", min(cosines, default=float("nan")), 0.999)


def _open(results: Results) -> Iterator[Promise]:
    for rate, bound in _OPEN_BOUNDS.items():
        case = f"open {rate:g}/s"
        ours = results.figure(OURS, case, "open", lambda load: load.p95_ms)
        best = results.best_peer(case, "open", lambda load: load.p95_ms)
        yield _at_most(f"{case}: p95 ÷ best peer's", ours / best, bound)


def _contended(results: Results) -> Iterator[Promise]:
    for texts in ("short", "mixed"):
        case = f"contended {texts}"
        total = results.total(OURS, case)
        yield _at_least(
            f"{case}: interactive kept within 50 ms", results.kept(OURS, case, "interactive"), 0.995
        )
        yield _at_most(
            f"{case}: p95 ms", results.figure(OURS, case, "interactive", lambda load: load.p95_ms), 20
        )
        yield _at_most(
            f"{case}: p99 ms", results.figure(OURS, case, "interactive", lambda load: load.p99_ms), 30
        )
        yield _at_least(f"{case}: total ÷ raw limit", total / results.limit(texts), 0.92)
        yield _at_least(f"{case}: total ÷ best peer's", total / results.best_peer_total(case), 1.35)
    case = "contended 40/s"
    yield _at_least(f"{case}: interactive kept within 50 ms", results.kept(OURS, case, "interactive"), 0.99)
    yield _at_least(f"{case}: total ÷ raw limit", results.total(OURS, case) / results.limit("short"), 0.82)


def _shares(results: Results) -> Iterator[Promise]:
    shares = results.device_shares(OURS, "shares 1:2:4")
    whole = sum(WEIGHTS.values())
    off = [abs(share - WEIGHTS[name] / whole) * 100 for name, share in shares.items()]
    yield _at_most("shares 1:2:4: largest distance, points of device time", max(off, default=float("nan")), 3)


def _overload(results: Results) -> Iterator[Promise]:
    case = f"overload {GREEDY_RATE:g}/s"
    others = ("calm", "mild")
    kept = [results.kept(OURS, case, name) for name in others]
    p95 = [results.figure(OURS, case, name, lambda load: load.p95_ms) for name in others]
    yield _at_least(f"{case}: the others kept within 50 ms", min(kept), 0.99)
    yield _at_most(f"{case}: the others' p95 ms", max(p95), 25)


def _simulated(results: Results) -> Iterator[Promise]:
    """The simulator knows neither the gateway nor the client: throughput is what it must get right."""
    for said in results.predictions:
        real = results.total(OURS, said.case)
        yield _at_most(
            f"{said.case}: simulated total, distance from the real", abs(said.total_per_s / real - 1), 0.10
        )


def _echo(results: Results) -> Iterator[Promise]:
    one = [each for each in results.echo if each.gateways == 1]
    two = [each for each in results.echo if each.gateways == 2]
    per_core = middle(each.requests_per_gateway_core for each in one)
    yield _at_least("echo: requests/s per gateway core", per_core, 25_000)
    yield _at_most("echo: p99 ms at 64 connections", middle(each.p99_ms for each in one), 5)
    if two:
        shared = middle(each.requests_per_gateway_core for each in two)
        yield _at_least("echo: CPU per request of one gateway ÷ of two on one core", shared / per_core, 0.95)
    for each in results.light:
        case = f"200/s on {each.connections} connections: gateway and wire add"
        yield _at_most(f"{case}, p50 ms", each.p50_ms, 0.6)
        yield _at_most(f"{case}, p99 ms", each.p99_ms, 2)


def _decisions(results: Results) -> Iterator[Promise]:
    slowest = [each.p99_us for each in results.decisions]
    yield _at_most("scheduler: p99 of its decisions, µs", max(slowest, default=float("nan")), 200)
