"""What drills and soaks found, as data and as lines of RESULTS.md."""

from __future__ import annotations

import msgspec

from benchmarks.promises import Promise


class Drill(msgspec.Struct, kw_only=True):
    """What one kill did."""

    killed: str
    answered: int
    wrong: int
    failed: dict[str, int]
    """By HTTP status; `lost` is a connection that broke."""
    longest_failed_s: float
    """From send to refusal or loss."""
    recovered_s: float
    """From the kill to the first right answer of a request sent after it."""
    silence_s: float
    """The longest time without any right answer."""
    replaced_s: float
    """From the kill to the new process; 0 where none is expected."""
    lost_usage: int
    """Answers that the ledger does not know."""
    load_s: float = 0.0
    """How long the new replica loaded, where one did."""


ONE_OF_TWO, THE_ONLY = "one of two replicas", "the only replica"


def promises(played: list[Drill]) -> list[Promise]:
    """What is promised of a kill, against what it did."""
    by_name = {drill.killed: drill for drill in played}
    found = []
    if pair := by_name.get(ONE_OF_TWO):
        found.append(_at_most(f"kill -9 of {ONE_OF_TWO}: failed requests", sum(pair.failed.values()), 0))
    if only := by_name.get(THE_ONLY):
        found += [
            _at_most(f"kill -9 of {THE_ONLY}: longest wait for a refusal, s", only.longest_failed_s, 2),
            _at_most(
                f"kill -9 of {THE_ONLY}: back after, beyond load time, s", only.recovered_s - only.load_s, 1
            ),
        ]
    if played:
        found += [
            _at_most("kill -9 of each part: wrong answers", sum(drill.wrong for drill in played), 0),
            _at_most(
                "kill -9 of each part: answers not billed", sum(drill.lost_usage for drill in played), 0
            ),
        ]
    return found


def _at_most(what: str, measured: float, bound: float) -> Promise:
    return Promise(what=what, measured=measured, bound=bound, is_at_most=True)


class Memory(msgspec.Struct, kw_only=True):
    """One kind of process: the largest of that kind, at the first and at the last look."""

    kind: str
    first_mib: float
    last_mib: float
    slope_mib_per_hour: float | None
    """Of a straight line through the looks at the process that lived longest, without its first third.

    None where no process lived long enough to say.
    """
    first_files: int
    last_files: int


class Soak(msgspec.Struct, kw_only=True):
    """One soak: what was done to the platform, and what it did."""

    minutes: float
    answered: int
    wrong: int
    failed: dict[str, int]
    abandoned: int
    kills: dict[str, int]
    edits: int
    memory: list[Memory]
    reconciliations: int
    """Quiet moments at which a gateway's counters were added up."""
    unreconciled: list[str]
    """What did not add up; nothing, if all is well."""
    orphans: list[str]
    ledger_missing: int
    """Right answers that the ledger does not know."""


def drills(played: list[Drill]) -> list[str]:
    """The lines of RESULTS.md; none of nothing."""
    if not played:
        return []
    heads = "killed,right answers,wrong,failed,longest failed s,answers again after s,silence s,replaced after s,loaded in s,lost usage"
    rows = [
        [
            drill.killed,
            f"{drill.answered:,}",
            str(drill.wrong),
            ", ".join(f"{count} × {what}" for what, count in drill.failed.items()) or "0",
            f"{drill.longest_failed_s:.2f}",
            f"{drill.recovered_s:.2f}",
            f"{drill.silence_s:.2f}",
            f"{drill.replaced_s:.1f}",
            f"{drill.load_s:.1f}" if drill.load_s else "–",
            str(drill.lost_usage),
        ]
        for drill in played
    ]
    table = ["| " + " | ".join(row) + " |" for row in ([*heads.split(",")], *rows)]
    table.insert(1, "|" + "---|" * len(heads.split(",")))
    note = "The whole platform on this machine, eight clients of one tenant without retries of their own."
    return ["## kill -9 under load", "", note, "", *table, ""]


def soak(found: Soak) -> list[str]:
    """The lines of RESULTS.md."""
    kills = ", ".join(f"{count} × {name}" for name, count in found.kills.items()) or "none"
    failed = ", ".join(f"{count} × {name}" for name, count in found.failed.items()) or "none"
    rows = [
        [
            one.kind,
            f"{one.first_mib:.0f}",
            f"{one.last_mib:.0f}",
            "–" if one.slope_mib_per_hour is None else f"{one.slope_mib_per_hour:+.1f}",
            str(one.first_files),
            str(one.last_files),
        ]
        for one in found.memory
    ]
    heads = ["process", "first MiB", "last MiB", "MiB per hour", "first files", "last files"]
    lines = ["| " + " | ".join(row) + " |" for row in (heads, *rows)]
    lines.insert(1, "|" + "---|" * len(heads))
    return [
        f"## A soak of {found.minutes:g} minutes",
        "",
        f"Killed meanwhile: {kills}; {found.edits} profile edits, {found.abandoned} requests abandoned by their clients.",
        f"{found.answered:,} right answers, {found.wrong} wrong; failed: {failed}.",
        f"Counters added up at {found.reconciliations} quiet moments"
        + (": " + "; ".join(found.unreconciled) if found.unreconciled else ", every time exactly")
        + f"; answers the ledger does not know: {found.ledger_missing};"
        + f" orphans: {', '.join(found.orphans) or 'none'}.",
        "",
        *lines,
        "",
    ]
