"""RESULTS.md: the promises first, then every case, then how it was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from benchmarks.cases import BY_NAME, WEIGHTS, Kind
from benchmarks.decisions import QUEUED
from benchmarks.loadgen import LoadOutcome
from benchmarks.profile import Profile
from benchmarks.promises import BF16, OURS, Promise, promises
from benchmarks.results import Results, middle

METHOD = """## How it was measured

- Gateway (or the peer's front) and the load generator share core 0; the model's process has core 1, one
  torch thread. The contended cases send both classes at once, each with its own key.
- **Raw limit**: the same engine in a plain loop on core 1, the best of batches of 1, 8 and 32 sentences,
  tokenised beforehand (in Tidegate the gateway's core tokenises). It is measured again in every round, between
  the served cases, so that a change of the machine's speed meets all of them.
- **Peers** run with the same weights, torch and transformers, batches of at most 32, 5 ms, one model process;
  they tokenise and pad in that process, as their examples do. "Best peer" is the best of those in this run, in
  each case and figure anew. bf16 is compared to the peers' fp32: it is an option of a version here.
- Open loop: Poisson arrivals, latency from the *scheduled* arrival. Closed loop: from the send.
- Everything on the gateway's path is on: authentication, admission, routing, receipts, metrics, usage. The
  configuration comes from a last-good file; the control plane, PostgreSQL and Valkey do not run.
- Medians over the rounds, except the share kept, which counts all that was due in all of them. `other CPU` is the share of one core that neither the server nor the generator used:
  with much of it, the round says little.
"""


def markdown(
    results: Results,
    *,
    pictures: Iterable[str] = (),
    also: Iterable[Promise] = (),
    more: Iterable[str] = (),
) -> str:
    """`pictures`: names of SVG files beside it; `also` and `more`: promises and lines of other measurements."""
    parts = [
        "# Benchmark results",
        "",
        f"{results.machine}. {_versions(results)}. {results.rounds} rounds, {results.started_at}.",
        "Run it again: `python -m benchmarks.run` (see its `--help`).",
        "",
        *_promises([*promises(results), *also]),
        *(f"![{name}]({name}.svg)" for name in pictures),
        "",
        *_limits(results),
        *_throughput(results),
        *_contended(results),
        *_shares(results),
        *_overload(results),
        *_predictions(results),
        *_echo(results),
        *_decisions(results),
        *more,
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


def _promises(found: list[Promise]) -> list[str]:
    rows = [
        [
            each.what,
            _number(each.measured, _digits(each.bound)),
            ("≤ " if each.is_at_most else "≥ ") + f"{each.bound:,g}",
            "kept" if each.is_kept else "**missed**",
        ]
        for each in found
    ]
    return ["## What is promised", "", *_table(["promise", "measured", "bound", ""], rows)]


def _digits(bound: float) -> int:
    return 0 if bound > 1000 else 1 if bound > 4 else 3


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
    for server, case in _measured(results, "one tenant"):
        load = next(iter(results.of(server, case)[0].loads))
        total = results.total(server, case)
        rows.append(
            [case, server, _number(total), _of_raw(results, case, total)]
            + [_number(results.figure(server, case, load, read)) for read in (_p50, _p95, _p99)]
            + [
                _number(results.figure(server, case, load, lambda each: each.mean_batch_rows)),
                _errors(results, server, case),
                _other(results, server, case),
            ]
        )
    heads = "case,server,answers/s,of raw,p50 ms,p95 ms,p99 ms,mean batch,errors,other CPU"
    return ["## One tenant", "", *_table(heads.split(","), rows)] if rows else []


def _contended(results: Results) -> list[str]:
    rows = []
    for server, case in _measured(results, "contended"):
        total = results.total(server, case)
        rows.append(
            [case, server, _percent(results.kept(server, case, "interactive"))]
            + [_number(results.figure(server, case, "interactive", read)) for read in (_p50, _p95, _p99)]
            + [
                _number(total),
                _of_raw(results, case, total),
                _errors(results, server, case),
                _other(results, server, case),
            ]
        )
    heads = "case,server,50 ms kept,p50 ms,p95 ms,p99 ms,total/s,of raw,errors,other CPU"
    title = "## An interactive tenant (10/s Poisson, or as said) beside a bulk tenant with 128 requests outstanding"
    return [title, "", *_table(heads.split(","), rows)] if rows else []


def _shares(results: Results) -> list[str]:
    whole = sum(WEIGHTS.values())
    rows = [
        [name, f"{WEIGHTS[name]:g}", _percent(share, 2), _percent(WEIGHTS[name] / whole, 2)]
        for name, share in results.device_shares(OURS, "shares 1:2:4").items()
    ]
    title = "## Three tenants, 64 requests outstanding each: shares of the device's time, by receipts"
    return [title, "", *_table(["tenant", "weight", "measured", "due"], rows)] if rows else []


def _overload(results: Results) -> list[str]:
    rows = []
    for server, case in _measured(results, "overload"):
        for name in results.of(server, case)[0].loads:
            answered = results.figure(server, case, name, lambda each: each.answered_per_s)
            rows.append(
                [name, _number(answered), _percent(results.kept(server, case, name))]
                + [_number(results.figure(server, case, name, read)) for read in (_p50, _p95, _p99)]
            )
    title = "## An interactive tenant at 450/s, more than the device can do, beside two at 15/s"
    heads = ["tenant", "answers/s", "50 ms kept", "p50 ms", "p95 ms", "p99 ms"]
    return [title, "", *_table(heads, rows)] if rows else []


def _predictions(results: Results) -> list[str]:
    rows = []
    for said in results.predictions:
        real = [
            results.total(OURS, said.case),
            results.kept(OURS, said.case, "interactive"),
            results.figure(OURS, said.case, "interactive", _p50),
            results.figure(OURS, said.case, "interactive", _p95),
        ]
        if real[0] != real[0]:
            continue
        for who, (total, kept, p50, p95) in (
            ("simulated", (said.total_per_s, said.kept_share, said.p50_ms, said.p95_ms)),
            ("real", real),
        ):
            rows.append([said.case, who, _number(total), _percent(kept), _number(p50), _number(p95)])
    heads = ["case", "", "total/s", "50 ms kept", "p50 ms", "p95 ms"]
    title = "## The simulator and the real run"
    note = "Real latencies are those of the client: they include HTTP, the gateway and two process switches."
    return [title, "", note, "", *_table(heads, rows)] if rows else []


def _measured(results: Results, kind: Kind) -> list[tuple[str, str]]:
    """(server, case), by case, ours first."""
    found = dict.fromkeys((each.server, each.case) for each in results.measured)
    cases = list(BY_NAME)
    servers = [OURS, BF16, *results.peers]
    return sorted(
        (pair for pair in found if BY_NAME[pair[1]].kind == kind),
        key=lambda pair: (cases.index(pair[1]), servers.index(pair[0])),
    )


def _of_raw(results: Results, case: str, total: float) -> str:
    return _percent(total / results.limit(BY_NAME[case].texts), 0)


def _percent(share: float, digits: int = 1) -> str:
    return _number(100 * share, digits) + " %"


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
        lambda each: each.gateways,
        lambda each: each.requests_per_s,
        lambda each: each.gateway_us_per_request,
        lambda each: each.requests_per_gateway_core,
        lambda each: each.worker_us_per_request,
        lambda each: each.p50_ms,
        lambda each: each.p99_ms,
        lambda each: each.errors,
    ]
    digits = (0, 0, 1, 0, 1, 2, 2, 0)
    rows = []
    for gateways in sorted({each.gateways for each in results.echo}):
        measured = [each for each in results.echo if each.gateways == gateways]
        columns = zip(read, digits, strict=True)
        rows.append([_number(middle(map(one, measured)), places) for one, places in columns])
    heads = [
        "gateways",
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
        *_table(heads, rows),
        *_light(results),
    ]


def _light(results: Results) -> list[str]:
    if not results.light:
        return []
    rows = [
        [
            str(each.connections),
            str(each.requests),
            _number(each.p50_ms, 2),
            _number(each.p99_ms, 2),
            str(each.errors),
        ]
        for each in results.light
    ]
    text = "Added by gateway and wire at 200 requests a second, over queue and execution by the receipt:"
    return ["", text, "", *_table(["connections", "requests", "p50 ms", "p99 ms", "errors"], rows)]


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
