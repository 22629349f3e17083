"""What was measured, as data, and the figures that summarise it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import median

import msgspec

from benchmarks.decisions import Decision
from benchmarks.echo import EchoOutcome
from benchmarks.light import LightOutcome
from benchmarks.loadgen import LoadOutcome, Outcome
from benchmarks.profile import Profile
from benchmarks.raw_limit import Limit


class Round(msgspec.Struct, kw_only=True):
    server: str
    case: str
    outcome: Outcome


class Agreement(msgspec.Struct, kw_only=True):
    """Cosines between embeddings of the same sentences by two variants."""

    variant: str
    least_cosine: float
    sentences: int


class Prediction(msgspec.Struct, kw_only=True):
    """What the simulator said of a case before it was played."""

    case: str
    total_per_s: float
    kept_share: float
    p50_ms: float
    p95_ms: float


class Results(msgspec.Struct, kw_only=True):
    """Everything one run of the harness measured, in the order it was measured."""

    machine: str
    started_at: str
    rounds: int
    versions: dict[str, str]
    peers: list[str] = []
    ready_s: dict[str, float] = {}
    limits: list[Limit] = []
    measured: list[Round] = []
    agreements: list[Agreement] = []
    predictions: list[Prediction] = []
    echo: list[EchoOutcome] = []
    light: list[LightOutcome] = []
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
        """Median over the rounds."""
        values = [read(outcome.loads[load]) for outcome in self.of(server, case) if load in outcome.loads]
        return middle(value for value in values if value is not None)

    def kept(self, server: str, case: str, load: str) -> float:
        """Share of all that was due in all rounds; a median would hide a round that went wrong."""
        loads = [outcome.loads[load] for outcome in self.of(server, case) if load in outcome.loads]
        due = sum(each.due for each in loads)
        return sum((each.kept_share or 0.0) * each.due for each in loads) / due if due else float("nan")

    def best_peer_total(self, case: str) -> float:
        """The most answers per second any peer gave; NaN when none was measured."""
        return max(self._of_peers(lambda peer: self.total(peer, case)), default=float("nan"))

    def best_peer(self, case: str, load: str, read: Callable[[LoadOutcome], float | None]) -> float:
        """The least of a latency any peer reached."""
        return min(self._of_peers(lambda peer: self.figure(peer, case, load, read)), default=float("nan"))

    def device_shares(self, server: str, case: str) -> dict[str, float]:
        """Load → its share of the device's time, by the receipts of all rounds."""
        spent: dict[str, float] = {}
        for outcome in self.of(server, case):
            for name, load in outcome.loads.items():
                spent[name] = spent.get(name, 0.0) + (load.device_ms or 0.0)
        whole = sum(spent.values())
        return {name: each / whole for name, each in spent.items()} if whole else {}

    def _of_peers(self, read: Callable[[str], float]) -> list[float]:
        return [value for value in map(read, self.peers) if value == value]


def middle(values: Iterable[float]) -> float:
    """The median, NaN of nothing."""
    found = list(values)
    return median(found) if found else float("nan")
