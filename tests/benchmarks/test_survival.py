"""What a kill did is read from the answers alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import drills, soak, survival, written
from benchmarks.checked_load import Answer
from benchmarks.survival import Drill, Memory, Soak
from tests.benchmarks.test_report import results as results  # a fixture


def drill(killed: str = survival.THE_ONLY, **fields: object) -> Drill:
    values = {
        "killed": killed,
        "answered": 100,
        "wrong": 0,
        "failed": {},
        "longest_failed_s": 0.3,
        "recovered_s": 4.5,
        "silence_s": 4.5,
        "replaced_s": 0.2,
        "lost_usage": 0,
        "load_s": 4.0,
    }
    return Drill(**values | fields)


ANSWERS = [
    Answer(0.0, 1.0, 200, True),
    Answer(1.0, 3.5, 503, False),
    Answer(1.5, 1.7, 0, False),
    Answer(2.1, 6.0, 200, True),
    Answer(2.2, 5.0, 200, True),
    Answer(5.0, 5.5, 200, False),
]


def test_recovery_is_the_first_right_answer_of_a_request_sent_after_the_kill() -> None:
    assert drills._recovered(ANSWERS, 2.0) == 5.0
    assert drills._recovered(ANSWERS, 5.0) is None


def test_failures_are_counted_by_status_and_the_longest_is_named() -> None:
    assert drills._failures(ANSWERS) == {"503": 1, "lost": 1}
    assert drills._longest_failed(ANSWERS) == 2.5
    assert drills._silence(ANSWERS) == 4.0


def test_a_kill_is_held_against_its_promises() -> None:
    kept = {each.what: each.is_kept for each in survival.promises([drill(), drill(survival.ONE_OF_TWO)])}
    assert len(kept) == 5 and all(kept.values())
    late = survival.promises([drill(recovered_s=5.1), drill(survival.ONE_OF_TWO, failed={"503": 1})])
    assert [each.is_kept for each in late] == [False, True, False, True, True]
    lost = survival.promises([drill("the gateway", wrong=1, lost_usage=2)])
    assert [each.is_kept for each in lost] == [False, False]


def test_a_slope_needs_looks_enough() -> None:
    looks = [soak._Look(float(60 * minute), 100.0 + minute, 9) for minute in range(10)]
    assert soak._slope(looks) == pytest.approx(60.0)
    assert soak._slope(looks[:3]) is None


def test_counters_are_read_from_the_exposition() -> None:
    text = (
        '# TYPE tidegate_requests_total counter\ntidegate_requests_total{outcome="ok",tenant="a"} 5.0\n'
        'tidegate_requests_total{outcome="draining",tenant="a"} 1.0\n'
        "tidegate_received_requests_total 8.0\ntidegate_replayed_requests_total 2.0\n"
    )
    assert soak.sums(text) == {"received": 8.0, "outcomes": 8.0}


def test_results_tell_of_drills_and_soaks_too(results, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    memory = Memory(
        kind="gateway", first_mib=80, last_mib=81, slope_mib_per_hour=None, first_files=9, last_files=9
    )
    found = Soak(
        minutes=20,
        answered=5,
        wrong=0,
        failed={"503": 2},
        abandoned=1,
        kills={"agent": 1},
        edits=3,
        memory=[memory],
        reconciliations=20,
        unreconciled=[],
        orphans=[],
        ledger_missing=0,
    )
    written.keep("results", results, tmp_path)
    written.keep("drills", [drill()], tmp_path)
    written.keep("soak", found, tmp_path)
    written.write(tmp_path)
    text = (tmp_path / "RESULTS.md").read_text()
    assert "| kill -9 of the only replica: longest wait for a refusal, s | 0.300 | ≤ 2 | kept |" in text
    assert "## kill -9 under load" in text
    assert "every time exactly" in text
