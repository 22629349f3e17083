from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import profile, texts
from benchmarks.loadgen import LoadOutcome, Outcome
from benchmarks.raw_limit import Limit
from benchmarks.report import markdown
from benchmarks.results import Results, Round
from serving.contract import CostCurve


def outcome(total: float, kept: float | None = None) -> Outcome:
    load = LoadOutcome(
        answered=100, answered_per_s=total, errors={}, p50_ms=1, p95_ms=2, p99_ms=3, max_ms=4, kept_share=kept
    )
    return Outcome(
        loads={"closed" if kept is None else "interactive": load},
        total_per_s=total,
        window_s=1,
        cpu_share={},
        other_cpu_share=0.01,
    )


def limit(kind: str, best: float) -> Limit:
    curve = CostCurve(a_ms=3.5, b_ms_per_row=0, c_ms_per_token=0.2)
    return Limit(kind=kind, by_batch={"32": best}, best=best, best_with_tokenisation=best, curve=curve)


@pytest.fixture
def results() -> Results:
    return Results(
        machine="a machine",
        started_at="today",
        dtype="fp32",
        rounds=3,
        versions={"torch": "2"},
        limits=[limit("short", 360), limit("short", 400), limit("short", 300)],
        measured=[
            *(
                Round(server="tidegate", case="closed64 short", outcome=outcome(rate))
                for rate in (350, 355, 100)
            ),
            Round(server="mosec", case="closed64 short", outcome=outcome(240)),
            Round(server="tidegate", case="contended short", outcome=outcome(300, 0.5)),
        ],
    )


def test_promises_compare_medians(results: Results) -> None:
    promises = {each.what: each for each in results.promises()}
    assert promises["closed64 short ÷ raw limit"].measured == pytest.approx(350 / 360, abs=1e-3)
    assert promises["closed64 short ÷ mosec"].is_kept
    assert not promises["contended short: interactive answers within 50 ms"].is_kept


def test_what_was_not_measured_is_not_promised(results: Results) -> None:
    assert not any("echo" in each.what or "mixed" in each.what for each in results.promises())


def test_the_report_says_what_was_missed(results: Results) -> None:
    text = markdown(results)
    assert "**missed**" in text
    assert "| closed64 short | tidegate | 350.0 | 97 % |" in text


def test_a_profile_folds_own_time_by_function_and_leaves_idle_pools_out(tmp_path: Path) -> None:
    folded = tmp_path / "stacks"
    folded.write_text(
        "main (a.py);work (/x/site-packages/lib/b.py) 30\n"
        "main (a.py) 10\n"
        "_bootstrap (threading.py);_worker (concurrent/futures/thread.py) 500\n"
    )
    read = profile.read(folded)
    assert read.samples == 40
    assert (read.functions[0].where, read.functions[0].share) == ("work (lib/b.py)", 0.75)


def test_texts_are_the_same_every_time() -> None:
    assert texts.sentences("mixed", 50) == texts.sentences("mixed", 50)
    lengths = [len(text.split()) + 3 for text in texts.sentences("short", 200)]
    assert (min(lengths), max(lengths)) == (10, 14)
