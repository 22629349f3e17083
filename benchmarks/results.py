"""What was measured, as data, and the ratios that are promised."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import median

import msgspec

from benchmarks.decisions import Decision
from benchmarks.echo import EchoOutcome
from benchmarks.loadgen import LoadOutcome, Outcome
from benchmarks.profile import Profile
from benchmarks.raw_limit import Limit


class Round(msgspec.Struct, kw_only=True):
    server: str
    case: str
    outcome: Outcome


class Promise(msgspec.Struct, kw_only=True):
    what: str
    measured: float
    least: float

    @property
    def is_kept(self) -> bool:
        return self.measured >= self.least


class Results(msgspec.Struct, kw_only=True):
    """Everything one run of the harness measured, in the order it was measured."""

    machine: str
    started_at: str
    dtype: str
    rounds: int
    versions: dict[str, str]
    ready_s: dict[str, float] = {}
    limits: list[Limit] = []
    measured: list[Round] = []
    echo: list[EchoOutcome] = []
    profile: Profile | None = None
    decisions: list[Decision] = []

    def limit(self, kind: str) -> float:
        """Median of the engine's own limit, sentences per second; NaN when it was not measured."""
        return middle(limit.best for limit in self.limits if limit.kind == kind)

    def of(self, server: str, case: str) -> list[Outcome]:
        return [each.outcome for each in self.measured if (each.server, each.case) == (server, case)]

    def total(self, server: str, case: str) -> float:
        """Median answers per second of all classes together."""
        return middle(outcome.total_per_s for outcome in self.of(server, case))

    def figure(self, server: str, case: str, load: str, read: Callable[[LoadOutcome], float | None]) -> float:
        values = [read(outcome.loads[load]) for outcome in self.of(server, case) if load in outcome.loads]
        return middle(value for value in values if value is not None)

    def promises(self) -> list[Promise]:
        candidates = [
            _ratio(
                "closed64 short ÷ raw limit",
                self.total("tidegate", "closed64 short"),
                self.limit("short"),
                0.95,
            ),
            _ratio(
                "closed64 mixed ÷ raw limit",
                self.total("tidegate", "closed64 mixed"),
                self.limit("mixed"),
                0.95,
            ),
            _ratio(
                "closed64 short ÷ mosec",
                self.total("tidegate", "closed64 short"),
                self.total("mosec", "closed64 short"),
                1.25,
            ),
            Promise(
                what="contended short: interactive answers within 50 ms",
                measured=self.figure(
                    "tidegate", "contended short", "interactive", lambda load: load.kept_share
                ),
                least=0.97,
            ),
            _ratio(
                "contended short: total ÷ raw limit",
                self.total("tidegate", "contended short"),
                self.limit("short"),
                0.85,
            ),
            Promise(
                what="echo: requests/s per gateway core",
                measured=middle(each.requests_per_gateway_core for each in self.echo),
                least=12_000,
            ),
        ]
        return [each for each in candidates if each.measured == each.measured]


def middle(values: Iterable[float]) -> float:
    """The median, NaN of nothing."""
    found = list(values)
    return median(found) if found else float("nan")


def _ratio(what: str, above: float, below: float, least: float) -> Promise:
    return Promise(what=what, measured=round(above / below, 3) if below else float("nan"), least=least)
