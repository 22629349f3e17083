"""HTTP/1.1 load: closed loop, open loop (Poisson), several classes at once, each with its own key.

    python -m benchmarks.loadgen < plan.json > outcome.json

Latency counts from the *scheduled* arrival in open loop (nothing is omitted when the server stalls) and from
the send in closed loop. Loopback only.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections import Counter

import msgspec
import uvloop

from benchmarks import machine
from benchmarks.senders import Load, OpenSender, Sender, now

NEVER_MS = 1e9
"""Every percentile of no answers at all: JSON knows no infinity."""
_GRACE_S = 10.0
"""How long answers may still arrive after the last request was sent."""


class Plan(msgspec.Struct, kw_only=True):
    loads: list[Load]
    duration_s: float
    warm_up_s: float = 1.5
    core: int | None = None
    pids: dict[str, int] = {}
    """Name → process whose CPU time is counted, with its descendants."""
    seed: int = 1


class LoadOutcome(msgspec.Struct, kw_only=True):
    """Counts of requests *sent* in the window. Latencies in milliseconds."""

    answered: int
    answered_per_s: float
    """Answers that arrived within the window, per second."""
    errors: dict[str, int]
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float
    due: int = 0
    kept_share: float | None = None
    """Answered within the target, of all requests that were due."""
    send_lag_p99_ms: float = 0.0
    mean_batch_rows: float | None = None
    device_ms: float | None = None
    """Of all answers that arrived within the window, by their receipts."""
    quantiles_ms: list[float] = []
    """The latencies at 0, 1, … 100 % of the answers."""


class Outcome(msgspec.Struct, kw_only=True):
    loads: dict[str, LoadOutcome]
    total_per_s: float
    window_s: float
    cpu_share: dict[str, float]
    """Of one core, by name of `Plan.pids`, and `generator`."""
    other_cpu_share: float
    """Of one core, used by neither: a measurement with much of it is worth nothing."""


async def play(plan: Plan) -> Outcome:
    """Raises `OSError` when nothing listens."""
    begin = now() + plan.warm_up_s
    end = begin + plan.duration_s
    kinds = {"closed": Sender, "open": OpenSender}
    senders = [kinds[load.mode](load, plan.seed, end) for load in plan.loads]
    gc.freeze()
    for sender in senders:
        await sender.start()
    await asyncio.sleep(begin - now())
    before = _CpuReading(plan)
    await asyncio.sleep(end - now())
    after = _CpuReading(plan)
    await _settle(senders)
    return _outcome(plan, senders, begin, end, before, after)


async def _settle(senders: list[Sender]) -> None:
    deadline = now() + _GRACE_S
    while now() < deadline and any(  # noqa: ASYNC110
        each.is_waiting for sender in senders for each in sender.connections
    ):
        await asyncio.sleep(0.02)
    for sender in senders:
        for connection in list(sender.connections):
            connection.close()


class _CpuReading:
    def __init__(self, plan: Plan) -> None:
        self.at = now()
        self.by_name = {
            name: sum(machine.cpu_of(machine.tree(pid)).values()) for name, pid in plan.pids.items()
        }
        self.by_name["generator"] = machine.cpu_s(os.getpid())
        self.machine = machine.busy_s()


def _outcome(
    plan: Plan, senders: list[Sender], begin: float, end: float, before: _CpuReading, after: _CpuReading
) -> Outcome:
    window_s = after.at - before.at
    shares = {name: (after.by_name[name] - before.by_name[name]) / window_s for name in after.by_name}
    loads = {sender.load.name: _load_outcome(sender, begin, end) for sender in senders}
    return Outcome(
        loads=loads,
        total_per_s=round(sum(each.answered_per_s for each in loads.values()), 1),
        window_s=round(window_s, 3),
        cpu_share={name: round(share, 3) for name, share in shares.items()},
        other_cpu_share=round((after.machine - before.machine) / window_s - sum(shares.values()), 3),
    )


def _load_outcome(sender: Sender, begin: float, end: float) -> LoadOutcome:
    is_open = sender.load.mode == "open"
    due = [record for record in sender.records if begin <= record[0] < end]
    good = [record for record in due if record[3] == 200]
    latencies = sorted((ended - (scheduled if is_open else sent)) * 1e3 for scheduled, sent, ended, _ in good)
    finished = sum(1 for record in sender.records if record[3] == 200 and begin <= record[2] < end)
    unanswered = sum(1 for each in sender.connections if each.is_waiting)
    errors = Counter(f"http_{status}" if status else "lost" for *_, status in due if status != 200)
    if unanswered:
        errors["unanswered"] = unanswered
    receipts = [(rows, device_ms) for ended, rows, device_ms in sender.receipts if begin <= ended < end]
    target_ms = sender.load.target_ms
    kept = sum(1 for latency in latencies if target_ms is not None and latency <= target_ms)
    return LoadOutcome(
        answered=len(good),
        answered_per_s=round(finished / (end - begin), 1),
        errors=dict(errors),
        p50_ms=_percentile(latencies, 0.5),
        p95_ms=_percentile(latencies, 0.95),
        p99_ms=_percentile(latencies, 0.99),
        max_ms=_percentile(latencies, 1.0),
        due=len(due) + unanswered,
        kept_share=None if target_ms is None else round(kept / max(1, len(due) + unanswered), 4),
        send_lag_p99_ms=_percentile(sorted((sent - due_at) * 1e3 for due_at, sent, *_ in due), 0.99),
        mean_batch_rows=round(sum(rows for rows, _ in receipts) / len(receipts), 1) if receipts else None,
        device_ms=round(sum(device_ms for _, device_ms in receipts), 1) if receipts else None,
        quantiles_ms=[_percentile(latencies, share / 100) for share in range(101)] if latencies else [],
    )


def _percentile(ordered: list[float], share: float) -> float:
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))], 2) if ordered else NEVER_MS


def main() -> None:
    plan = msgspec.json.decode(sys.stdin.buffer.read(), type=Plan)
    if plan.core is not None:
        machine.pin(plan.core)
    sys.stdout.buffer.write(msgspec.json.encode(uvloop.run(play(plan))))


if __name__ == "__main__":
    main()
