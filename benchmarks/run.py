"""Measures Tidegate beside the engine's own limit and its peers, and writes RESULTS.md, pictures and results.json.

    python -m benchmarks.run                      everything, three rounds, about twelve minutes
    python -m benchmarks.run --only closed --rounds 1 --scale 0.3      a quick look

Needs two cores, `taskset`, the requirements, and `wrk` for the echo case. Everything stays on loopback.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import msgspec

from benchmarks import agreement, cases, drills, echo, machine, predicted, processes, profile, stack, written
from benchmarks.cases import Case, Server
from benchmarks.decisions import Decision
from benchmarks.peers import peer
from benchmarks.peers.known import PEERS
from benchmarks.processes import free_port
from benchmarks.promises import BF16, OURS, promises
from benchmarks.raw_limit import Limit, Question
from benchmarks.results import Results, Round
from serving.agent.launchers.allocation import allocation
from serving.contract import CostCurve

HERE = Path(__file__).resolve().parent


class RawLimit:
    """The plain loop, kept loaded between the rounds."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin and process.stdout
        self._in, self._out = process.stdin, process.stdout
        self._read()

    def measure(self, kind: str, seconds: float) -> Limit:
        self._in.write(msgspec.json.encode(Question(kind, seconds)).decode() + "\n")
        return msgspec.json.decode(self._read(), type=Limit)

    def _read(self) -> str:
        line = self._out.readline()
        if not line:
            raise processes.StartFailed("the raw limit's process ended; see raw_limit.log")
        return line


@contextlib.contextmanager
def raw_limit(directory: Path) -> Iterator[RawLimit]:
    core = stack.WORKER_CORE
    command = processes.python("-m", "benchmarks.raw_limit", "--core", str(core))
    with processes.started(
        "raw_limit", command, core=core, log_dir=directory, environment=allocation(os.environ), pipes=True
    ) as process:
        yield RawLimit(process)


@dataclass(slots=True)
class Harness:
    """One run: what is measured, for how long, into which results."""

    results: Results
    chosen: list[Case]
    directory: Path
    scale: float
    has_bf16: bool

    def measure_model(self) -> None:
        with raw_limit(self.directory) as raw, contextlib.ExitStack() as open_servers:
            say("the engine alone, once for its cost curve")
            curve = raw.measure("short", 2.0).curve  # what validation would have measured
            servers = [*self._own(curve, open_servers), *self._peers(open_servers)]
            for seed in range(self.results.rounds):
                self._round(raw, servers, seed)
        self._predict()

    def _own(self, curve: CostCurve, open_servers: contextlib.ExitStack) -> list[Server]:
        names = {OURS: "fp32"}
        if self.has_bf16 and any(case.name in cases.BF16_CASES for case in self.chosen):
            names[BF16] = "bf16"
        servers = []
        for name, dtype in names.items():
            say(f"starting gateway and worker, {dtype}")
            entry = stack.minilm(curve if dtype == "fp32" else None, dtype)
            own = open_servers.enter_context(stack.serving(entry, self.directory / dtype))
            self.results.ready_s[name] = round(own.ready_s, 2)
            servers.append(cases.tidegate(own, name))
        if len(servers) == 2:
            self.results.agreements.append(agreement.measure(*servers))
        return servers

    def _peers(self, open_servers: contextlib.ExitStack) -> list[Server]:
        servers = []
        if any(case.peers_s for case in self.chosen):
            for name in self.results.peers:
                say(f"starting {name}")
                running = open_servers.enter_context(
                    peer.serving(PEERS[name], self.directory / name, free_port())
                )
                self.results.ready_s[name] = round(running.ready_s, 2)
                servers.append(cases.peer(running))
        return servers

    def _round(self, raw: RawLimit, servers: list[Server], seed: int) -> None:
        say(f"round {seed + 1} of {self.results.rounds}")
        measured: set[str] = set()
        for case in self.chosen:
            if case.texts not in measured:
                measured.add(case.texts)
                self.results.limits.append(raw.measure(case.texts, 5.0 * self.scale))
                say(f"  raw limit, {case.texts}: {self.results.limits[-1].best:.0f}/s")
            for server in servers:
                if case.seconds(server) and (server.name != BF16 or case.name in cases.BF16_CASES):
                    self._play(case, server, seed)

    def _play(self, case: Case, server: Server, seed: int) -> None:
        outcome = cases.play(case, server, seed, scale=self.scale)
        self.results.measured.append(Round(server=server.name, case=case.name, outcome=outcome))
        first = next(iter(outcome.loads.values()))
        kept = "" if first.kept_share is None else f", kept {first.kept_share:.1%}"
        say(
            f"  {case.name:16} {server.name:13} {outcome.total_per_s:7.1f}/s  "
            f"p50/95/99 {first.p50_ms:.1f}/{first.p95_ms:.1f}/{first.p99_ms:.1f} ms{kept}"
            f"  other CPU {outcome.other_cpu_share:.0%}"
        )

    def _predict(self) -> None:
        """On the curve of the last round: the simulator is asked about this machine at this hour."""
        curves = {limit.kind: limit.curve for limit in self.results.limits}
        for case in self.chosen:
            if case.kind == "contended":
                self.results.predictions.append(predicted.predict(case, curves[case.texts]))

    def measure_echo(self) -> None:
        if not echo.is_possible():
            say("no wrk on PATH: the echo case is left out")
            return
        with stack.serving(stack.echo(), self.directory / "echo") as own:
            self._press_echo(own)
            for outcome in echo.measure_light(own, 10 * self.scale):
                self.results.light.append(outcome)
                say(f"  light x{outcome.connections}: gateway and wire add p50 {outcome.p50_ms:.2f} ms")
            self._profile(own)
        with stack.serving(stack.echo(), self.directory / "echo-x2", gateways=2) as own:
            self._press_echo(own)

    def _press_echo(self, own: stack.Stack) -> None:
        connections = echo.CONNECTIONS * sum(name.startswith("gateway") for name in own.pids)
        echo.measure(own, self.directory, seconds=1, connections=connections)
        for _ in range(self.results.rounds):
            seconds = max(1, round(4 * self.scale))
            outcome = echo.measure(own, self.directory, seconds=seconds, connections=connections)
            self.results.echo.append(outcome)
            say(
                f"  echo x{outcome.gateways} {outcome.requests_per_s:.0f}/s, "
                f"{outcome.gateway_us_per_request:.1f} µs of the gateway each"
            )

    def measure_decisions(self) -> None:
        command = processes.python("-m", "benchmarks.decisions", str(stack.WORKER_CORE))
        output = processes.finished(command, timeout_s=120)
        self.results.decisions = msgspec.json.decode(output, type=list[Decision])

    def _profile(self, own: stack.Stack) -> None:
        if not profile.is_possible():
            say("no py-spy on PATH: the profile is left out")
            return
        output = self.directory / "gateway.folded"
        sampler = profile.record(own.pids["gateway"], output, seconds=4)
        echo.measure(own, self.directory, seconds=6)
        sampler.wait(30)
        if output.exists():
            self.results.profile = profile.read(output)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.run",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="factor on every duration")
    parser.add_argument(
        "--only", default="", help="cases whose name contains this; `echo` for that one alone"
    )
    parser.add_argument("--peers", default=",".join(PEERS), help="which of these, separated by commas")
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--no-bf16", action="store_true")
    parser.add_argument("--no-echo", action="store_true")
    parser.add_argument(
        "--drills", action="store_true", help="kill each part too (`benchmarks.drills`, minutes)"
    )
    parser.add_argument("--nice", default="", help="e.g. -15: measured processes go before other work (root)")
    parser.add_argument("--output", type=Path, default=HERE, help="directory of RESULTS.md and results.json")
    return parser.parse_args()


def _new_results(arguments: argparse.Namespace) -> Results:
    peers = [] if arguments.no_peer else [name for name in arguments.peers.split(",") if name]
    if unknown := set(peers) - PEERS.keys():
        raise SystemExit(f"no such peer: {', '.join(sorted(unknown))}; there are {', '.join(PEERS)}")
    names = ("torch", "transformers", "uvicorn")
    return Results(
        machine=machine.describe(),
        started_at=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        rounds=arguments.rounds,
        versions={name: version(name) for name in names} | {name: PEERS[name].version for name in peers},
        peers=peers,
    )


def _measure(arguments: argparse.Namespace) -> Results:
    results = _new_results(arguments)
    chosen = [case for case in cases.CASES if arguments.only in case.name]
    has_bf16 = not arguments.no_bf16 and machine.has_bf16()
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as name, machine.alone():
        harness = Harness(results, chosen, Path(name), arguments.scale, has_bf16)
        if chosen:
            harness.measure_model()
        if not arguments.no_echo and arguments.only in ("", "echo"):
            harness.measure_echo()
        if not arguments.only:
            harness.measure_decisions()
    return results


def main() -> int:
    """Exit status 1 when a promise was missed."""
    arguments = _arguments()
    if len(os.sched_getaffinity(0)) < 2:
        say("two cores are needed: one for the gateway and the load, one for the model")
        return 2
    os.environ["BENCHMARK_NICE"] = arguments.nice
    results = _measure(arguments)
    written.keep("results", results, arguments.output)
    if arguments.drills:
        written.keep("drills", drills.play(), arguments.output)
    written.write(arguments.output)
    return _say_promises(results)


def _say_promises(results: Results) -> int:
    found = promises(results)
    for each in found:
        sign = "at most" if each.is_at_most else "at least"
        verdict = "kept  " if each.is_kept else "MISSED"
        say(f"{verdict} {each.what}: {each.measured:.4g} ({sign} {each.bound:g})")
    return 0 if all(each.is_kept for each in found) else 1


if __name__ == "__main__":
    sys.exit(main())
