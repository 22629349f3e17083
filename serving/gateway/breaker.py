"""Circuit breakers of one replica: who may be sent there. Pure: time and chance are arguments.

A circuit is closed, open for a back-off, then half-open: exactly one request, the probe, decides. It opens on
consecutive failures or on the share of failures in a window; only outcomes that say something about the
replica are told (an engine failure, memory, a death, silence until the deadline).

**One tenant cannot take a replica from the others.** What a tenant met opens a circuit of its own, which
stops only that tenant. The circuit for everyone opens when the evidence stands whichever single tenant
is left out of it: somebody's poisonous input explains the failures of that tenant, never those of all.

The states and the half-open probe are Nygard's (Release It!, 2007).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple

CONSECUTIVE_FAILURES = 5
FAILED_SHARE = 0.5
LEAST_SAMPLES = 20
WINDOW_S = 10.0
DEATHS = 3
"""So many deaths in a row, with no answer between and no tenant present in all, are the replica's own."""
FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 30.0
JITTER = 0.2
"""Waits differ by up to this share, so that gateways do not probe in step."""
FORGIVEN_AFTER_S = 60.0
"""Closed for so long, a circuit starts again with the first wait."""
MAX_TENANTS = 512
"""Remembered at one breaker; what others meet is not counted while so many are in trouble."""


class State(IntEnum):
    CLOSED = 0
    HALF_OPEN = 1
    OPEN = 2


class Circuit:
    """The automaton; whoever owns it decides when it trips."""

    __slots__ = ("_changed_at", "_open_until", "_trips", "is_closed", "is_probed")

    def __init__(self) -> None:
        self.is_closed = True
        self.is_probed = False
        """Half-open, and its one probe is on its way."""
        self._trips = 0
        self._open_until = self._changed_at = 0.0

    def admits(self, now: float) -> bool:
        return self.is_closed or (not self.is_probed and now >= self._open_until)

    def state(self, now: float) -> State:
        if self.is_closed:
            return State.CLOSED
        return State.HALF_OPEN if self.is_probed or now >= self._open_until else State.OPEN

    def wait_s(self, now: float) -> float:
        """Until it may be probed; 0 when it may be now."""
        return 0.0 if self.is_closed else max(0.0, self._open_until - now)

    def trip(self, now: float, chance: float, *, is_longer: bool = True) -> None:
        """Open, for longer each time; `chance` in [0, 1) spreads the wait."""
        if self.is_closed and now - self._changed_at > FORGIVEN_AFTER_S:
            self._trips = 0
        self._trips += is_longer or not self._trips
        wait_s = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(self._trips - 1, 16))
        self._open_until = now + wait_s * (1.0 + JITTER * (2.0 * chance - 1.0))
        self.is_closed = self.is_probed = False

    def close(self, now: float) -> None:
        self.is_closed, self.is_probed, self._changed_at = True, False, now

    def renew(self, now: float) -> None:
        """What it was open for has been replaced: it may be probed at once."""
        self._open_until = min(self._open_until, now)


class _Met:
    """What one tenant met at one replica: two half windows, and the failures in a row."""

    __slots__ = (
        "answered",
        "circuit",
        "failed",
        "half",
        "lost",
        "old_answered",
        "old_failed",
        "old_lost",
        "row",
        "row_all",
        "since",
    )

    def __init__(self) -> None:
        self.circuit = Circuit()
        self.half = 0
        self.answered = self.failed = self.old_answered = self.old_failed = 0
        self.lost = self.old_lost = 0
        """Deaths it was present at. They are no part of any share: whoever else was there may have killed it."""
        self.row = 0
        """Failures and deaths since this tenant was last answered."""
        self.row_all = self.since = 0
        """Failures since anybody was answered, and which answer that was."""

    def roll(self, half: int) -> None:
        if half == self.half:
            return
        is_next = half == self.half + 1
        news = (self.answered, self.failed, self.lost) if is_next else (0, 0, 0)
        self.old_answered, self.old_failed, self.old_lost = news
        self.answered = self.failed = self.lost = 0
        self.half = half

    def clear(self) -> None:
        self.answered = self.failed = self.old_answered = self.old_failed = self.row = self.row_all = 0
        self.lost = self.old_lost = 0

    @property
    def is_troubled(self) -> bool:
        return bool(self.failures or self.lost or self.old_lost)

    @property
    def failures(self) -> int:
        return self.failed + self.old_failed

    @property
    def samples(self) -> int:
        return self.failures + self.answered + self.old_answered


class Probe(NamedTuple):
    """The one request that decides: of the circuit for everyone, of its tenant's own, or of both."""

    tenant_id: str
    circuits: tuple[Circuit, ...]


class Breaker:
    """Both kinds of circuit of one replica. `random` gives numbers in [0, 1)."""

    __slots__ = (
        "_answers",
        "_deaths",
        "_everyone",
        "_met",
        "_prober",
        "_random",
        "_suspects",
        "is_calm",
        "opened",
    )

    def __init__(self, random: Callable[[], float]) -> None:
        self.is_calm = True
        """Nothing failed lately: everybody is admitted, and answers need not be told."""
        self.opened = 0
        """How often a circuit opened here."""
        self._random = random
        self._everyone = Circuit()
        self._met: dict[str, _Met] = {}
        self._answers = 0
        self._deaths = 0
        self._suspects: frozenset[str] = frozenset()
        self._prober = ""

    # ------------------------------------------------------------ asking

    def is_closed_for(self, tenant_id: str) -> bool:
        return self.is_calm or all(circuit.is_closed for circuit in self._circuits(tenant_id))

    def admits(self, tenant_id: str, now: float) -> bool:
        """Closed, or ready for a probe by this tenant."""
        return self.is_calm or (self.wait_s(tenant_id, now) <= 0.0 and not self.is_probed_for(tenant_id))

    def is_probed_for(self, tenant_id: str) -> bool:
        return any(circuit.is_probed for circuit in self._circuits(tenant_id))

    def wait_s(self, tenant_id: str, now: float) -> float:
        """Until this tenant may be sent here or may probe."""
        wait_s = max(circuit.wait_s(now) for circuit in self._circuits(tenant_id))
        # Whoever failed the last probe for everyone lets others go first: it may be its input.
        is_again = not self._everyone.is_closed and tenant_id == self._prober
        return wait_s if not is_again else max(wait_s, self._everyone.wait_s(now - FIRST_WAIT_S))

    def state(self, now: float) -> State:
        """Of the circuit for everyone."""
        return self._everyone.state(now)

    def tenants_stopped(self) -> int:
        """Tenants whose own circuit is not closed."""
        return sum(not met.circuit.is_closed for met in self._met.values())

    # ------------------------------------------------------------ sending

    def claim(self, tenant_id: str) -> Probe | None:
        """The request now sent is the probe of every circuit that is not closed. Ask `admits` before."""
        circuits = tuple(circuit for circuit in self._circuits(tenant_id) if not circuit.is_closed)
        for circuit in circuits:
            circuit.is_probed = True
        return Probe(tenant_id, circuits) if circuits else None

    def release(self, probe: Probe) -> None:
        """The probe ended without saying anything about the replica: the next request is one."""
        for circuit in probe.circuits:
            circuit.is_probed = False

    # ------------------------------------------------------------ outcomes

    def answered(self, tenant_id: str, now: float, probe: Probe | None = None) -> None:
        if self.is_calm:
            return
        self._answers += 1
        self._deaths = 0
        met = self._of(tenant_id, now)
        if met is not None:
            met.row = 0
            met.answered += 1
        for circuit in probe.circuits if probe is not None else ():
            self._close(circuit, now)

    def failed(self, tenant_id: str, now: float, probe: Probe | None = None) -> None:
        self.is_calm = False
        met = self._of(tenant_id, now)
        if met is not None:
            self._count(met)
            self._judge(met, now)
        if probe is not None:
            self._fail_probe(probe, now)

    def lost(self, tenant_ids: Collection[str], now: float, probes: Iterable[Probe] = ()) -> None:
        """The replica died with work of these tenants on it; any one of them may have killed it."""
        self.is_calm = False
        present = frozenset(tenant_ids)
        self._suspects = present if not self._deaths else self._suspects & present
        self._deaths += 1
        for tenant_id in present:
            met = self._of(tenant_id, now)
            if met is not None:
                met.row += 1
                met.lost += 1
                self._judge_own(met, now)
        for probe in probes:
            self._fail_probe(probe, now)
        if self._deaths >= DEATHS and not self._suspects:
            self._trip(self._everyone, now)

    def renewed(self, now: float) -> None:
        """Another process answers at the address: what is open may be probed at once."""
        for circuit in (self._everyone, *(met.circuit for met in self._met.values())):
            circuit.renew(now)

    def calm_down(self, now: float) -> None:
        """Forget tenants that are well again; called about once a second."""
        half = _half(now)
        for tenant_id, met in list(self._met.items()):
            met.roll(half)
            if met.circuit.is_closed and not met.is_troubled:
                del self._met[tenant_id]
        self.is_calm = not self._met and self._everyone.is_closed

    # ------------------------------------------------------------ evidence

    def _circuits(self, tenant_id: str) -> tuple[Circuit, ...]:
        met = self._met.get(tenant_id)
        return (self._everyone,) if met is None else (self._everyone, met.circuit)

    def _of(self, tenant_id: str, now: float) -> _Met | None:
        met = self._met.get(tenant_id)
        if met is None:
            if len(self._met) >= MAX_TENANTS:
                return None
            met = self._met[tenant_id] = _Met()
        met.roll(_half(now))
        return met

    def _count(self, met: _Met) -> None:
        met.failed += 1
        met.row += 1
        if met.since != self._answers:
            met.row_all, met.since = 0, self._answers
        met.row_all += 1

    def _judge(self, met: _Met, now: float) -> None:
        self._judge_own(met, now)
        if self._everyone.is_closed and self._is_everyones():
            self._trip(self._everyone, now)

    def _judge_own(self, met: _Met, now: float) -> None:
        is_often = met.samples >= LEAST_SAMPLES and met.failures >= FAILED_SHARE * met.samples
        if met.circuit.is_closed and (met.row >= CONSECUTIVE_FAILURES or is_often):
            self._trip(met.circuit, now)

    def _is_everyones(self) -> bool:
        """Whether the rule holds for the outcomes of the others, whoever is left out."""
        every = list(self._met.values())
        rows = [met.row_all if met.since == self._answers else 0 for met in every]
        if sum(rows) - max(rows) >= CONSECUTIVE_FAILURES:
            return True
        failures, samples = sum(met.failures for met in every), sum(met.samples for met in every)
        return all(
            samples - met.samples >= LEAST_SAMPLES
            and failures - met.failures >= FAILED_SHARE * (samples - met.samples)
            for met in every
        )

    # ------------------------------------------------------------ circuits

    def _trip(self, circuit: Circuit, now: float, *, is_longer: bool = True) -> None:
        self.opened += circuit.is_closed
        circuit.trip(now, self._random(), is_longer=is_longer)

    def _fail_probe(self, probe: Probe, now: float) -> None:
        for circuit in probe.circuits:
            # One tenant's probes, failing again and again, do not make everybody wait longer.
            is_same = circuit is self._everyone and probe.tenant_id == self._prober
            self._trip(circuit, now, is_longer=not is_same)
            if circuit is self._everyone:
                self._prober = probe.tenant_id

    def _close(self, circuit: Circuit, now: float) -> None:
        circuit.close(now)
        if circuit is self._everyone:
            self._prober = ""
        for met in self._met.values():
            if circuit is self._everyone or met.circuit is circuit:
                met.clear()


def admitting(breakers: Sequence[Breaker], tenant_id: str, now: float) -> list[int]:
    """Which of a version's replicas may be sent a request of this tenant, by their places.

    One that is due for a probe gets it at once, so that it is back soon. While all are open the version's
    circuit is: one probe in flight for all of them together.
    """
    closed = [place for place, breaker in enumerate(breakers) if breaker.is_closed_for(tenant_id)]
    if not closed and any(breaker.is_probed_for(tenant_id) for breaker in breakers):
        return []
    for place, breaker in enumerate(breakers):
        if place not in closed and breaker.admits(tenant_id, now):
            return [place]
    return closed


def _half(now: float) -> int:
    return int(now / (WINDOW_S / 2))
