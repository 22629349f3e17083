"""What the demo prints: one row per tenant, and one receipt drawn as a waterfall."""

from __future__ import annotations

import math

from console.demo.load import Answer, Outcome

STAGES = ("gateway", "queue", "batch_wait", "execute", "post")


def percentile(values: list[float], quantile: float) -> float:
    """Nearest rank; NaN when there is nothing to rank."""
    if not values:
        return math.nan
    return sorted(values)[max(1, math.ceil(quantile * len(values))) - 1]


def table(outcomes: list[Outcome], targets_ms: dict[str, float]) -> str:
    """Latencies are the clients' own; batch, device time and cost come from the receipts."""
    head = (
        "tenant",
        "requests",
        "failed",
        "p50 ms",
        "p95 ms",
        "p99 ms",
        "target",
        "SLA kept",
        "mean batch",
        "device ms",
        "cost",
    )
    rows = [head, *(_row(outcome, targets_ms[outcome.slug]) for outcome in outcomes)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = [
        "  ".join(
            cell.rjust(width) if at else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def _row(outcome: Outcome, target_ms: float) -> tuple[str, ...]:
    good = outcome.good
    latencies = [answer.latency_ms for answer in good]
    kept = (
        sum(latency <= target_ms for latency in latencies) / len(outcome.answers)
        if outcome.answers
        else math.nan
    )
    batches = [answer.number("x-tidegate-batch-size") for answer in good]
    return (
        outcome.slug,
        str(len(outcome.answers)),
        str(len(outcome.answers) - len(good)),
        *(f"{percentile(latencies, quantile):.1f}" for quantile in (0.5, 0.95, 0.99)),
        f"{target_ms:g}",
        f"{kept:.1%}",
        f"{sum(batches) / len(batches):.1f}" if batches else "–",
        f"{sum(answer.number('x-tidegate-device-ms') for answer in good):.0f}",
        f"{sum(answer.number('x-tidegate-cost') for answer in good):.6f}",
    )


def typical(answers: list[Answer]) -> Answer:
    """The one in the middle by latency; `answers` is not empty."""
    return sorted(answers, key=lambda answer: answer.latency_ms)[len(answers) // 2]


def receipt(answer: Answer) -> str:
    """The stages of one answer as bars; they sum to the total."""
    timing = parse_server_timing(answer.headers.get("server-timing", ""))
    total = timing.get("total", 0.0)
    lines = [f"receipt of {answer.headers.get('x-request-id', '–')}"]
    for stage in STAGES:
        milliseconds = timing.get(stage, 0.0)
        bar = "█" * round(40 * milliseconds / total) if total else ""
        lines.append(f"  {stage:<11}{milliseconds:>9.3f} ms  {bar}")
    lines.append(f"  {'total':<11}{total:>9.3f} ms")
    facts = ("model-version", "batch-size", "batch-close", "predicted-ms", "device-ms", "cost")
    lines.append(
        "  " + "  ".join(f"{fact} {answer.headers.get('x-tidegate-' + fact, '–')}" for fact in facts)
    )
    return "\n".join(lines)


def parse_server_timing(value: str) -> dict[str, float]:
    """`a;dur=1.2, b;dur=3` → `{"a": 1.2, "b": 3.0}`."""
    parts = (part.strip().partition(";dur=") for part in value.split(",") if ";dur=" in part)
    return {name: float(duration) for name, _, duration in parts}
