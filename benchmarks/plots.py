"""SVG pictures beside RESULTS.md, readable on a light and on a dark page.

Needs matplotlib (`pip install -r requirements-bench.txt`); without it no pictures are drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.cases import TARGET_MS, WEIGHTS
from benchmarks.promises import BF16, OURS
from benchmarks.results import Results, middle

INK = "#7d8590"
"""Text and axes: enough contrast on white and on black."""
COLOURS = {OURS: "#2f81f7", BF16: "#8957e5", "mosec": "#d29922", "mlserver": "#db6d28", "litserve": "#f85149"}
CONTENDED = ("contended short", "contended mixed")
CLOSED = ("closed64 short", "closed64 mixed")


def is_possible() -> bool:
    return find_spec("matplotlib") is not None


def draw(results: Results, directory: Path) -> list[str]:
    """The names of the pictures that were drawn: those whose cases were played."""
    drawn = [name for name, (is_drawn, _) in _PLOTS.items() if is_drawn(results)]
    for name in drawn:
        figure = _PLOTS[name][1](results)
        figure.savefig(directory / f"{name}.svg", transparent=True, metadata={"Date": None})
    return drawn


def _figure(columns: int, title: str) -> Any:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    matplotlib.rcParams |= {
        "svg.fonttype": "none",
        "svg.hashsalt": "tidegate",
        "font.size": 10,
        **dict.fromkeys(
            ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color", "grid.color"),
            INK,
        ),
    }
    figure, axes = pyplot.subplots(1, columns, figsize=(5.2 * columns, 3.4), layout="constrained")
    figure.suptitle(title)
    found = list(axes) if columns > 1 else [axes]
    for one in found:
        one.spines[["top", "right"]].set_visible(False)
        one.grid(alpha=0.25)
        one.set_axisbelow(True)
    return figure, found


def _servers(results: Results, case: str) -> list[str]:
    return [name for name in (OURS, BF16, *results.peers) if results.of(name, case)]


def _latencies(results: Results) -> Any:
    cases = [case for case in CONTENDED if results.of(OURS, case)]
    figure, axes = _figure(
        len(cases), "An interactive tenant beside a bulk tenant: share answered within a time"
    )
    for case, one in zip(cases, axes, strict=True):
        for server in _servers(results, case):
            rounds = [each.loads["interactive"].quantiles_ms for each in results.of(server, case)]
            curve = [middle(column) for column in zip(*filter(None, rounds), strict=True)]
            one.plot(curve, range(len(curve)), label=server, color=COLOURS.get(server), linewidth=2)
        one.axvline(TARGET_MS, color=INK, linestyle="--", linewidth=1)
        one.annotate(
            "the promise: 50 ms", (TARGET_MS, 3), xytext=(4, 0), textcoords="offset points", fontsize=8
        )
        one.set(title=case, xscale="log", xlabel="latency, ms", ylabel="% of answers", ylim=(0, 101))
        one.legend(frameon=False)
    return figure


def _throughput(results: Results) -> Any:
    cases = [case for case in (*CLOSED, *CONTENDED) if results.of(OURS, case)]
    figure, axes = _figure(len(cases), "Answers per second; the line is the engine alone in a loop (fp32)")
    for case, one in zip(cases, axes, strict=True):
        servers = _servers(results, case)
        totals = [results.total(server, case) for server in servers]
        bars = one.barh(servers, totals, color=[COLOURS.get(server, INK) for server in servers])
        one.bar_label(bars, fmt="%.0f", padding=3)
        limit = results.limit(case.split()[-1])
        if limit == limit:
            one.axvline(limit, color=INK, linestyle="--", linewidth=1)
        one.set(title=case, xlim=(0, 1.15 * max([*totals, limit if limit == limit else 0])))
        one.invert_yaxis()
    return figure


def _shares(results: Results) -> Any:
    shares = results.device_shares(OURS, "shares 1:2:4")
    figure, (one,) = _figure(1, "Three saturating tenants: shares of the device's time")
    names = [f"weight {WEIGHTS[name]:g}" for name in shares]
    bars = one.bar(names, [100 * share for share in shares.values()], color=COLOURS[OURS], width=0.5)
    one.bar_label(bars, fmt="%.1f %%", padding=3)
    whole = sum(WEIGHTS.values())
    for place, name in enumerate(shares):
        due = 100 * WEIGHTS[name] / whole
        one.plot([place - 0.35, place + 0.35], [due, due], color=INK, linestyle="--")
    one.set(ylabel="% of device time; dashed: due", ylim=(0, 70))
    return figure


_PLOTS: dict[str, tuple[Callable[[Results], bool], Callable[[Results], Any]]] = {
    "latencies": (lambda results: any(results.of(OURS, case) for case in CONTENDED), _latencies),
    "throughput": (lambda results: any(results.of(OURS, case) for case in CLOSED), _throughput),
    "shares": (lambda results: bool(results.device_shares(OURS, "shares 1:2:4")), _shares),
}
