"""kill -9 of every part of the running platform in turn, under load: what clients and the ledger notice.

    python -m benchmarks.drills                 all of them, about three minutes; drills.json and RESULTS.md
    python -m benchmarks.drills --only gateway

Starts a platform of its own (`manage.py demo`) with throw-away data. Every answer is compared with the one the
quiet platform gave; the ledger's requests are compared with the answers that clients received.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks import survival, written
from benchmarks.checked_load import Answer, CheckedLoad, Target
from benchmarks.survival import ONE_OF_TWO, THE_ONLY, Drill
from tests.processes.running_demo import RunningDemo, eventually

LEAD_S, TAIL_S = 1.5, 4.0
"""Load before the kill, and at least as much after it."""
PATIENCE_S = 60.0
LEDGER_S = 20.0
"""How long delivered usage may take to show."""
CONNECTIONS = 8
BULK = "acme-archive"


@dataclass(frozen=True, slots=True)
class Part:
    """What is killed: the words of its command line, and how many replicas run meanwhile."""

    name: str
    words: tuple[str, ...]
    replicas: int = 1


PARTS = (
    Part(ONE_OF_TWO, ("serving.worker",), replicas=2),
    Part(THE_ONLY, ("serving.worker",)),
    Part("the gateway", ("serving.gateway",)),
    Part("the agent", ("serving.agent",)),
    Part("the controller", ("controller",)),
    Part("PostgreSQL", ("postgres", "-D")),
    Part("Valkey", ("valkey-server",)),
)


class Ledger:
    """Usage of one tenant as the database has it."""

    _QUERY = (
        "from django.db.models import Sum, F\n"
        "from tenants.models import Tenant, UsageMinute\n"
        "from tenants.scoping import all_tenants\n"
        "with all_tenants('a drill counts'):\n"
        "    rows = UsageMinute.objects.filter(tenant_id=Tenant.objects.get(slug={slug!r}).pk)\n"
        "    print(rows.aggregate(n=Sum(F('requests') - F('failed') - F('cancelled')))['n'] or 0)"
    )

    def __init__(self, demo: RunningDemo, slug: str) -> None:
        self._demo, self._code = demo, self._QUERY.format(slug=slug)

    def answered(self) -> int:
        """Asked again while the database comes back."""
        return int(eventually(self._read, PATIENCE_S, "the ledger can be read"))

    def _read(self) -> str | None:
        """As text: nothing yet is an answer too."""
        try:
            lines = self._demo.manage(self._code).splitlines()
        except AssertionError:  # the shell's exit status
            return None
        return next((line for line in reversed(lines) if line.isdigit()), None)

    def settled(self) -> int:
        """Once two readings some seconds apart agree: gateways report every two seconds."""
        before = -1
        while (now := self.answered()) != before:
            before = now
            time.sleep(3.0)
        return now

    def at_least(self, wanted: int) -> int:
        """The newest reading, as soon as it reaches what is wanted, at last after a while."""
        deadline = time.monotonic() + LEDGER_S
        while (found := self.answered()) < wanted and time.monotonic() < deadline:
            time.sleep(1.0)
        return found


class Drills:
    def __init__(self, demo: RunningDemo) -> None:
        self._demo = demo
        self._ledger = Ledger(demo, BULK)
        self._target = Target.of(demo.facts, BULK)

    def run(self, part: Part) -> Drill:
        self._scale(part.replicas)
        before, epochs = self._ledger.settled(), self._epochs()
        pids = set(self._demo.pids(*part.words))
        load = CheckedLoad(self._target, CONNECTIONS)
        asked = load.learn()
        with load:
            time.sleep(LEAD_S)
            killed_at = time.monotonic()
            self._demo.kill(*part.words)
            replaced_at = self._replaced(part, pids)
            recovered_at = eventually(lambda: _recovered(load.answers, killed_at), PATIENCE_S, "an answer")
            time.sleep(TAIL_S)
        answers = load.answers
        right = sum(answer.is_right for answer in answers)
        known = self._ledger.at_least(before + asked + right) - before - asked
        return Drill(
            killed=part.name,
            answered=right,
            wrong=sum(answer.status == 200 and not answer.is_right for answer in answers),
            failed=_failures(answers),
            longest_failed_s=_longest_failed(answers),
            recovered_s=round(recovered_at - killed_at, 3),
            silence_s=_silence(answers),
            replaced_s=round(replaced_at - killed_at, 2),
            lost_usage=max(0, right - known),
            load_s=self._load_s(epochs) if "serving.worker" in part.words else 0.0,
        )

    def _replaced(self, part: Part, before: set[int]) -> float:
        eventually(lambda: set(self._demo.pids(*part.words)) - before, PATIENCE_S, f"{part.name} again")
        return time.monotonic()

    def _scale(self, replicas: int) -> None:
        self._demo.manage(
            "from serving.control.fleet.actions import scale\n"
            "from serving.control.fleet.models import Deployment\n"
            "from tenants.actors import Actor\n"
            f"scale(by=Actor.system('drill'), deployment=Deployment.objects.get(), replicas={replicas})"
        )
        eventually(
            lambda: self._ready() == (replicas, replicas), PATIENCE_S, f"{replicas} replicas are ready"
        )

    def _ready(self) -> tuple[int, int]:
        """Replicas that are ready, and processes that serve."""
        said = self._demo.manage(
            "from serving.control.fleet.models import Replica\n"
            "print(Replica.objects.filter(state='ready').count(), Replica.objects.exclude(state='stopped').count())"
        )
        ready, running = said.split()
        return int(ready), int(running)

    def _epochs(self) -> dict[str, tuple[int, float]]:
        """Replica → (epoch, load time) of its newest start that was reported ready."""
        said = self._demo.manage(
            "from serving.control.fleet.models import Replica\n"
            "for one in Replica.objects.filter(state='ready'): print(one.pk, one.epoch, one.load_s or 0)"
        )
        rows = [line.split() for line in said.splitlines()]
        return {pk: (int(epoch), float(load_s)) for pk, epoch, load_s in rows}

    def _load_s(self, before: dict[str, tuple[int, float]]) -> float:
        def newer() -> list[float]:
            return [
                load_s
                for pk, (epoch, load_s) in self._epochs().items()
                if pk in before and epoch > before[pk][0]
            ]

        return float(eventually(newer, PATIENCE_S, "the new start is reported")[0])


def _recovered(answers: list[Answer], killed_at: float) -> float | None:
    done = [answer.done for answer in list(answers) if answer.sent > killed_at and answer.is_right]
    return min(done, default=None)


def _failures(answers: list[Answer]) -> dict[str, int]:
    return dict(
        Counter(str(each.status) if each.status else "lost" for each in answers if each.status != 200)
    )


def _longest_failed(answers: list[Answer]) -> float:
    return round(max((each.done - each.sent for each in answers if each.status != 200), default=0.0), 3)


def _silence(answers: list[Answer]) -> float:
    times = sorted(each.done for each in answers if each.is_right)
    return round(max((b - a for a, b in itertools.pairwise(times)), default=0.0), 3)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.drills", description=__doc__)
    parser.add_argument("--only", default="", help="parts whose name contains this")
    parser.add_argument("--output", type=Path, default=written.HERE)
    arguments = parser.parse_args()
    drills = play(arguments.only)
    written.keep("drills", drills, arguments.output)
    written.write(arguments.output)
    return 0 if all(promise.is_kept for promise in survival.promises(drills)) else 1


def play(only: str = "") -> list[Drill]:
    """All whose part's name contains `only`, on a platform of their own."""
    drills = []
    with tempfile.TemporaryDirectory(prefix="tgdrill", ignore_cleanup_errors=True) as name:
        demo = RunningDemo(Path(name) / "state")
        try:
            demo.start()
            subject = Drills(demo)
            for part in (part for part in PARTS if only in part.name):
                drills.append(subject.run(part))
                print(msgspec.json.encode(drills[-1]).decode(), file=sys.stderr, flush=True)
        finally:
            demo.stop()
    return drills


if __name__ == "__main__":
    sys.exit(main())
