"""The running platform under load while its parts are killed, clients leave and profiles change.

    python -m benchmarks.soak --minutes 20

Every minute the load pauses: memory and open files of each process are read, every gateway's counters must add
up (received = the sum of all outcomes), and no process may be left that nobody started. soak.json, RESULTS.md.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil

from benchmarks import written
from benchmarks.checked_load import CheckedLoad, Target
from benchmarks.drills import BULK, Ledger
from benchmarks.survival import Memory, Soak
from tests.processes.running_demo import RunningDemo, eventually

MINUTE_S = 60.0
PATIENCE_S = 90.0
CHAT = "acme-chat"
KILLABLE = {
    "worker": ("serving.worker",),
    "gateway": ("serving.gateway",),
    "controller": ("controller",),
    "agent": ("serving.agent",),
}
WATCHED = KILLABLE | {
    "console": ("console.processes.web",),
    "tasks": ("console.processes.tasks",),
    "valkey": ("valkey-server",),
}
MIB = 1 << 20
LEAST_LOOKS = 5
_COUNTER = re.compile(
    r"^(tidegate_(?:received_|replayed_)?requests_total)(?:\{[^}]*\})? ([\d.e+]+)$", re.MULTILINE
)


@dataclass(slots=True)
class _Look:
    at: float
    mib: float
    files: int


@dataclass(slots=True)
class _Trail:
    """What was seen of the processes of each kind, by pid."""

    looks: dict[str, dict[int, list[_Look]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )

    def look(self, demo: RunningDemo) -> None:
        for kind, words in WATCHED.items():
            for pid in demo.pids(*words)[-1:]:
                try:
                    process = psutil.Process(pid)
                    seen = _Look(time.monotonic(), process.memory_info().rss / MIB, process.num_fds())
                except psutil.Error:
                    continue
                self.looks[kind][pid].append(seen)

    def memory(self) -> list[Memory]:
        return [_summary(kind, by_pid) for kind, by_pid in self.looks.items()]


class SoakRun:
    def __init__(self, demo: RunningDemo, seed: int) -> None:
        self._demo = demo
        self._rng = random.Random(seed)
        self._ledger = Ledger(demo, BULK)
        self._trail = _Trail()
        self._kills: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._unreconciled: list[str] = []
        self._orphans: list[str] = []
        self._family: dict[int, psutil.Process] = {}
        self._edits = self._looks = self._right = self._wrong = self._abandoned = self._asked = 0

    def run(self, minutes: float) -> Soak:
        began = self._ledger.settled()
        ends_at = time.monotonic() + minutes * MINUTE_S
        while time.monotonic() < ends_at:
            self._press(min(MINUTE_S, max(5.0, ends_at - time.monotonic())))
            self._inspect()
        known = self._ledger.at_least(began + self._asked + self._right) - began - self._asked
        return Soak(
            minutes=minutes,
            answered=self._right,
            wrong=self._wrong,
            failed=dict(self._failed),
            abandoned=self._abandoned,
            kills=dict(self._kills),
            edits=self._edits,
            memory=self._trail.memory(),
            reconciliations=self._looks,
            unreconciled=self._unreconciled,
            orphans=sorted(set(self._orphans)),
            ledger_missing=max(0, self._right - known),
        )

    # ---------------------------------------------------------------- pressing

    def _press(self, seconds: float) -> None:
        bulk = CheckedLoad(Target.of(self._demo.facts, BULK), 6)
        chat = CheckedLoad(Target.of(self._demo.facts, CHAT), 2, quit_share=0.1)
        self._asked += bulk.learn()
        chat.learn()
        ends_at = time.monotonic() + seconds
        with bulk, chat:
            while (left := ends_at - time.monotonic()) > 0:
                time.sleep(min(left, self._rng.uniform(4.0, 12.0)))
                if time.monotonic() < ends_at - 2.0:
                    self._disturb()
        self._right += sum(answer.is_right for answer in bulk.answers)
        self._abandoned += chat.abandoned
        for answer in (*bulk.answers, *chat.answers):
            self._wrong += answer.status == 200 and not answer.is_right
            if answer.status != 200:
                self._failed[str(answer.status) if answer.status else "lost"] += 1

    def _disturb(self) -> None:
        self._remember_family()
        if self._rng.random() < 0.4:
            self._edit_profile()
            return
        name = self._rng.choice(list(KILLABLE))
        try:
            self._demo.kill(*KILLABLE[name])
        except (IndexError, ProcessLookupError):
            return  # it is being replaced already
        self._kills[name] += 1

    def _edit_profile(self) -> None:
        weight = self._rng.choice((1, 2, 3))
        self._demo.manage(
            "from serving.control.profiles.actions import update_profile\n"
            "from serving.control.profiles.models import SlaProfile\n"
            "from tenants.actors import Actor\n"
            "profile = SlaProfile.objects.get(name='batch')\n"
            f"update_profile(by=Actor.system('soak'), profile=profile, weight={weight})"
        )
        self._edits += 1

    # ---------------------------------------------------------------- inspecting

    def _inspect(self) -> None:
        """At a quiet moment: everything is back, nothing is in flight."""
        eventually(lambda: self._demo.embed(timeout_s=5, slug=BULK) == 200, PATIENCE_S, "the model answers")
        self._asked += 1
        self._trail.look(self._demo)
        self._reconcile()
        self._find_orphans()

    def _reconcile(self) -> None:
        """Within one life of a gateway everything received is answered, refused, cancelled or failed."""
        sums = eventually(self._added_up, 20, "the counters add up") if self._added_up() else self._sums()
        self._looks += 1
        if sums["received"] != sums["outcomes"]:
            self._unreconciled.append(f"{sums['received']:.0f} received, {sums['outcomes']:.0f} outcomes")

    def _added_up(self) -> dict[str, float] | None:
        sums = self._sums()
        return sums if sums["received"] == sums["outcomes"] else None

    def _sums(self) -> dict[str, float]:
        return sums(httpx.get(f"{self._demo.facts['gateway']}/metrics", timeout=10).text)

    def _remember_family(self) -> None:
        for process in self._demo.descendants():
            self._family.setdefault(process.pid, process)

    def _find_orphans(self) -> None:
        """Processes that once were ours, still run, and have no parent of ours."""
        own = {process.pid for process in self._demo.descendants()}
        for pid, process in list(self._family.items()):
            if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
                del self._family[pid]
            elif pid not in own:
                self._orphans.append(" ".join(process.cmdline())[:80])


def sums(exposition: str) -> dict[str, float]:
    """What came in, and what became of it."""
    found = {"received": 0.0, "outcomes": 0.0}
    for name, value in _COUNTER.findall(exposition):
        found["received" if "received" in name else "outcomes"] += float(value)
    return found


def _summary(kind: str, by_pid: dict[int, list[_Look]]) -> Memory:
    ordered = sorted((look for looks in by_pid.values() for look in looks), key=lambda look: look.at)
    longest = max(by_pid.values(), key=len)
    return Memory(
        kind=kind,
        first_mib=round(ordered[0].mib, 1),
        last_mib=round(ordered[-1].mib, 1),
        slope_mib_per_hour=_slope(longest[len(longest) // 3 :]),
        first_files=ordered[0].files,
        last_files=ordered[-1].files,
    )


def _slope(looks: list[_Look]) -> float | None:
    """MiB per hour, least squares."""
    if len(looks) < LEAST_LOOKS:
        return None
    middle_at = sum(look.at for look in looks) / len(looks)
    middle_mib = sum(look.mib for look in looks) / len(looks)
    above = sum((look.at - middle_at) * (look.mib - middle_mib) for look in looks)
    return round(above / sum((look.at - middle_at) ** 2 for look in looks) * 3600, 1)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, default=written.HERE)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tgsoak", ignore_cleanup_errors=True) as name:
        demo = RunningDemo(Path(name) / "state")
        try:
            demo.start()
            found = SoakRun(demo, arguments.seed).run(arguments.minutes)
        finally:
            demo.stop()
    written.keep("soak", found, arguments.output)
    written.write(arguments.output)
    print(written.kept("soak", Soak, arguments.output), file=sys.stderr)
    return 0 if not (found.wrong or found.unreconciled or found.orphans) else 1


if __name__ == "__main__":
    sys.exit(main())
