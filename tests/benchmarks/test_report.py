from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import plots, predicted, profile, texts, written
from benchmarks.cases import BY_NAME
from benchmarks.loadgen import LoadOutcome, Outcome
from benchmarks.peers.known import PEERS
from benchmarks.peers.peer import Peer
from benchmarks.promises import promises
from benchmarks.raw_limit import Limit
from benchmarks.report import markdown
from benchmarks.results import Agreement, Prediction, Results, Round
from serving.contract import CostCurve

FIGURES: dict[str, Any] = {
    "answered": 100,
    "answered_per_s": 10.0,
    "errors": {},
    "p50_ms": 1,
    "p95_ms": 2,
    "p99_ms": 3,
    "max_ms": 4,
    "due": 100,
    "quantiles_ms": [float(share) for share in range(101)],
}


def outcome_of(loads: dict[str, LoadOutcome]) -> Outcome:
    total = sum(each.answered_per_s for each in loads.values())
    return Outcome(loads=loads, total_per_s=total, window_s=1, cpu_share={}, other_cpu_share=0.01)


def outcome(total: float, kept: float | None = None) -> Outcome:
    load = LoadOutcome(**FIGURES | {"answered_per_s": total, "kept_share": kept})
    return outcome_of({"closed" if kept is None else "interactive": load})


def limit(kind: str, best: float) -> Limit:
    curve = CostCurve(a_ms=3.5, b_ms_per_row=0, c_ms_per_token=0.2)
    return Limit(kind=kind, by_batch={"32": best}, best=best, best_with_tokenisation=best, curve=curve)


@pytest.fixture
def results() -> Results:
    return Results(
        machine="a machine",
        started_at="today",
        rounds=3,
        versions={"torch": "2"},
        peers=["mosec", "litserve"],
        limits=[limit("short", 360), limit("short", 400), limit("short", 300)],
        measured=[
            *(
                Round(server="tidegate", case="closed64 short", outcome=outcome(rate))
                for rate in (350, 355, 100)
            ),
            Round(server="mosec", case="closed64 short", outcome=outcome(240)),
            Round(server="litserve", case="closed64 short", outcome=outcome(250)),
            Round(server="tidegate", case="contended short", outcome=outcome(300, 0.5)),
            Round(server="tidegate", case="contended short", outcome=outcome(300, 1.0)),
            Round(server="tidegate", case="contended short", outcome=outcome(300, 1.0)),
        ],
    )


def kept_of(results: Results) -> dict[str, tuple[float, bool]]:
    return {each.what: (each.measured, each.is_kept) for each in promises(results)}


def test_promises_compare_medians_with_the_best_peer(results: Results) -> None:
    found = kept_of(results)
    assert found["closed64 short: answers/s ÷ raw limit"] == (pytest.approx(350 / 360), True)
    assert found["closed64 short: answers/s ÷ best peer"] == (pytest.approx(350 / 250), True)


def test_one_bad_round_shows_in_what_was_kept(results: Results) -> None:
    assert kept_of(results)["contended short: interactive kept within 50 ms"] == (
        pytest.approx(2.5 / 3),
        False,
    )


def test_what_was_not_measured_is_not_promised(results: Results) -> None:
    assert not any(
        word in what for what in kept_of(results) for word in ("echo", "mixed", "bf16", "scheduler")
    )


def test_shares_are_held_against_the_weights(results: Results) -> None:
    spent = {"one": 150.0, "two": 280.0, "four": 570.0}
    loads = {name: LoadOutcome(**FIGURES, device_ms=ms) for name, ms in spent.items()}
    results.measured.append(Round(server="tidegate", case="shares 1:2:4", outcome=outcome_of(loads)))
    measured, is_kept = kept_of(results)["shares 1:2:4: largest distance, points of device time"]
    assert measured == pytest.approx(15 - 100 / 7)
    assert is_kept


def test_the_simulator_is_held_against_the_real_run(results: Results) -> None:
    said = Prediction(case="contended short", total_per_s=320.0, kept_share=1.0, p50_ms=9, p95_ms=12)
    results.predictions.append(said)
    distance, is_kept = kept_of(results)["contended short: simulated total, distance from the real"]
    assert distance == pytest.approx(20 / 300)
    assert is_kept


def test_the_least_cosine_counts(results: Results) -> None:
    for cosine in (0.9999, 0.99):
        results.agreements.append(Agreement(variant="tidegate bf16", least_cosine=cosine, sentences=2))
    assert kept_of(results)["bf16: least cosine to fp32"] == (0.99, False)


def test_the_report_says_what_was_missed(results: Results) -> None:
    text = markdown(results, pictures=["latencies"])
    assert "**missed**" in text
    assert "| closed64 short | tidegate | 350.0 | 97 % |" in text
    assert "![latencies](latencies.svg)" in text


def test_results_read_back_as_they_were_written(results: Results, tmp_path: Path) -> None:
    written.keep("results", results, tmp_path)
    assert written.kept("results", Results, tmp_path) == results
    assert written.kept("drills", Results, tmp_path) is None


def test_only_what_was_measured_is_drawn(results: Results, tmp_path: Path) -> None:
    assert plots.draw(results, tmp_path) == ["latencies", "throughput"]
    assert "<svg" in (tmp_path / "latencies.svg").read_text()


def test_the_simulator_predicts_every_contended_case() -> None:
    curve = CostCurve(a_ms=3.5, b_ms_per_row=0, c_ms_per_token=0.225)
    said = predicted.predict(BY_NAME["contended short"], curve, seconds=10.0)
    assert said.kept_share > 0.95
    assert 250 < said.total_per_s < 380


@pytest.mark.parametrize("peer", PEERS.values(), ids=lambda peer: peer.name)
def test_a_peer_is_asked_for_one_text(peer: Peer, tmp_path: Path) -> None:
    assert peer.body.count("%s") == 1
    command = peer.command(Path("/venv/bin"), 8080, tmp_path)
    assert command[0] == "/venv/bin/python"
    assert "8080" in [*command, *peer.environment(8080).values()]


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
