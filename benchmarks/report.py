"""RESULTS.md: the promises first, then every case, then how it was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from benchmarks.decisions import QUEUED
from benchmarks.loadgen import LoadOutcome
from benchmarks.profile import Profile
from benchmarks.results import Results, middle

METHOD = """## How it was measured

- Gateway (or the peer's front) and the load generator share core 0; the model's process has core 1, one
  torch thread. The contended cases send both classes at once, each with its own key.
- **Raw limit**: the same engine in a plain loop on core 1, the best of batches of 1, 8 and 32 sentences,
  tokenised beforehand (in Tidegate the gateway's core tokenises). It is measured again in every round, between
  the served cases, so that a change of the machine's speed meets all of them.
- **Peer**: mosec with the same weights, torch and transformers, batches of at most 32, 5 ms; it tokenises and
  pads in its model process, as its examples do.
- Open loop: Poisson arrivals, latency from the *scheduled* arrival. Closed loop: from the send.
- Everything on the gateway's path is on: authentication, admission, routing, receipts, metrics, usage. The
  configuration comes from a last-good file; the control plane, PostgreSQL and Valkey do not run.
- Medians over the rounds. `other CPU` is the share of one core that neither the server nor the generator used:
  with much of it, the round says little.
"""


def markdown(results: Results) -> str:
    parts = [
        "# Benchmark results",
        "",
        f"{results.machine}. {_versions(results)}. {results.dtype}, {results.rounds} rounds, {results.started_at}.",
        "Run it again: `python -m benchmarks.run` (see its `--help`).",
        "",
        *_promises(results),
        *_limits(results),
        *_throughput(results),
        *_contended(results),
        *_echo(results),
        *_decisions(results),
        *_profile(results.profile),
        METHOD,
    ]
    return "\n".join(parts)


def _versions(results: Results) -> str:
    return ", ".join(f"{name} {version}" for name, version in results.versions.items())


def _table(heads: list[str], rows: Iterable[list[str]]) -> list[str]:
    return [
        "| " + " | ".join(heads) + " |",
        "|" + "---|" * len(heads),
        *("| " + " | ".join(row) + " |" for row in rows),
        "",
    ]


def _number(value: float, digits: int = 1) -> str:
    return f"{value:,.{digits}f}" if value == value else "–"


def _promises(results: Results) -> list[str]:
    rows = [
        [
            each.what,
            _number(each.measured, 0 if each.least > 100 else 3),
            _number(each.least, 0 if each.least > 100 else 2),
            "kept" if each.is_kept else "**missed**",
        ]
        for each in results.promises()
    ]
    return ["## What is promised", "", *_table(["promise", "measured", "at least", ""], rows)]


def _limits(results: Results) -> list[str]:
    if not results.limits:
        return []
    rows = []
    for kind in dict.fromkeys(limit.kind for limit in results.limits):
        found = [limit for limit in results.limits if limit.kind == kind]
        sizes = [_number(middle(limit.by_batch[size] for limit in found)) for size in found[0].by_batch]
        rows.append([kind, *sizes, _number(middle(limit.best_with_tokenisation for limit in found))])
    heads = ["texts", *(f"batch of {size}" for size in results.limits[0].by_batch), "best, with tokenisation"]
    return ["## The engine's own limit, sentences/s on one core", "", *_table(heads, rows)] if rows else []


def _throughput(results: Results) -> list[str]:
    rows = []
    for server, case in _measured(results, is_contended=False):
        load = next(iter(results.of(server, case)[0].loads))
        limit = results.limit("mixed" if case.endswith("mixed") else "short")
        total = results.total(server, case)
        rows.append(
            [case, server, _number(total), _number(100 * total / limit, 0) + " %"]
            + [_number(results.figure(server, case, load, read)) for read in (_p50, _p95, _p99)]
            + [
                _number(results.figure(server, case, load, lambda each: each.mean_batch_rows)),
                _errors(results, server, case),
                _other(results, server, case),
            ]
        )
    heads = [
        "case",
        "server",
        "answers/s",
        "of raw",
        "p50 ms",
        "p95 ms",
        "p99 ms",
        "mean batch",
        "errors",
        "other CPU",
    ]
    return ["## One tenant", "", *_table(heads, rows)] if rows else []


def _contended(results: Results) -> list[str]:
    rows = []
    for server, case in _measured(results, is_contended=True):
        kept = results.figure(server, case, "interactive", lambda each: each.kept_share)
        limit = results.limit("mixed" if case.endswith("mixed") else "short")
        total = results.total(server, case)
        rows.append(
            [case, server, _number(100 * kept, 1) + " %"]
            + [_number(results.figure(server, case, "interactive", read)) for read in (_p50, _p95, _p99)]
            + [
                _number(total),
                _number(100 * total / limit, 0) + " %",
                _errors(results, server, case),
                _other(results, server, case),
            ]
        )
    heads = [
        "case",
        "server",
        "50 ms kept",
        "p50 ms",
        "p95 ms",
        "p99 ms",
        "total/s",
        "of raw",
        "errors",
        "other CPU",
    ]
    title = "## An interactive tenant (10/s Poisson, or as said) beside a bulk tenant with 128 requests outstanding"
    return [title, "", *_table(heads, rows)] if rows else []


def _measured(results: Results, *, is_contended: bool) -> list[tuple[str, str]]:
    found = dict.fromkeys((each.server, each.case) for each in results.measured)
    return sorted(
        ((server, case) for server, case in found if case.startswith("contended") == is_contended),
        key=lambda pair: (
            list(dict.fromkeys(each.case for each in results.measured)).index(pair[1]),
            pair[0] != "tidegate",
        ),
    )


def _errors(results: Results, server: str, case: str) -> str:
    counts = [
        sum(load.errors.values()) for outcome in results.of(server, case) for load in outcome.loads.values()
    ]
    return str(sum(counts))


def _other(results: Results, server: str, case: str) -> str:
    return _number(100 * middle(outcome.other_cpu_share for outcome in results.of(server, case)), 0) + " %"


def _echo(results: Results) -> list[str]:
    if not results.echo:
        return []
    read: list[Callable[..., float]] = [
        lambda each: each.requests_per_s,
        lambda each: each.gateway_us_per_request,
        lambda each: each.requests_per_gateway_core,
        lambda each: each.worker_us_per_request,
        lambda each: each.p50_ms,
        lambda each: each.p99_ms,
        lambda each: each.errors,
    ]
    digits = (0, 1, 0, 1, 2, 2, 0)
    row = [_number(middle(map(one, results.echo)), places) for one, places in zip(read, digits, strict=True)]
    heads = [
        "requests/s",
        "gateway CPU µs/request",
        "requests/s per gateway core",
        "worker CPU µs/request",
        "p50 ms",
        "p99 ms",
        "errors",
    ]
    return [
        "## The echo engine: what the gateway itself costs (64 connections, `wrk`)",
        "",
        *_table(heads, [row]),
    ]


def _decisions(results: Results) -> list[str]:
    if not results.decisions:
        return []
    rows = [[f"`{each.call}`", _number(each.p50_us), _number(each.p99_us)] for each in results.decisions]
    title = f"## The scheduler's decisions with {QUEUED:,} works queued, µs"
    return [title, "", *_table(["call", "p50", "p99"], rows)]


def _profile(profile: Profile | None) -> list[str]:
    if profile is None:
        return []
    functions = [[f"`{each.where}`", _number(100 * each.share) + " %"] for each in profile.functions]
    modules = [[f"`{each.where}`", _number(100 * each.share) + " %"] for each in profile.modules[:15]]
    return [
        f"## Where the gateway's time goes ({profile.samples} samples under the echo load, own time)",
        "",
        *_table(["module", "share"], modules),
        *_table(["function", "share"], functions),
    ]


def _p50(load: LoadOutcome) -> float:
    return load.p50_ms


def _p95(load: LoadOutcome) -> float:
    return load.p95_ms


def _p99(load: LoadOutcome) -> float:
    return load.p99_ms
