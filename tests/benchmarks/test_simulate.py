"""The simulator by command: many replicas, recorded arrivals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import simulate, traces


def line(at_s: float, tenant: str = "chat", **more: object) -> str:
    return json.dumps({"at_s": at_s, "tenant": tenant, "sla_class": "interactive", "tokens": 12} | more)


@pytest.mark.parametrize("replicas", [1, 8])
@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_targets_and_weights_hold_on_one_replica_and_on_several(device: str, replicas: int) -> None:
    kind = simulate.KINDS[device]
    figures = simulate.simulate(kind, simulate.synthetic(kind, replicas, 1), replicas, 3.0, 1)
    chat = figures.tenants[0]
    assert chat.kept_share >= 0.99
    assert figures.busy_share > 0.95
    assert figures.unfairness < 0.03
    assert f"| {replicas} | gold | batch |" in simulate.table([figures])


def test_replicas_add_up() -> None:
    kind = simulate.KINDS["cpu"]
    totals = [
        simulate.simulate(kind, simulate.synthetic(kind, count, 1), count, 2.0, 1).total_per_s
        for count in (1, 4)
    ]
    assert totals[1] == pytest.approx(4 * totals[0], rel=0.1)


def test_a_recording_is_replayed_in_time_order() -> None:
    [chat, bulk] = traces.read([line(0.2, tokens=14), line(0.1), "", line(0.3, "bulk", sla_class="batch")])
    assert chat.gaps is not None
    assert list(chat.gaps) == pytest.approx([0.1, 0.1])
    assert [chat.tokens(), chat.tokens()] == [12, 14]
    assert bulk.sla_class == "batch"


def test_a_recording_is_answered_to_its_last_request() -> None:
    recorded = traces.read([line(index / 50, target_s=0.05) for index in range(100)])
    figures = simulate.simulate(simulate.KINDS["cpu"], recorded, 2, 5.0, 1)
    assert figures.tenants[0].answered_per_s * 5.0 == pytest.approx(100, abs=0.5)
    assert figures.tenants[0].kept_share == 1.0


@pytest.mark.parametrize(
    "bad", ["{", line(-1.0), line(0.0, tokens=0), line(0.0, sla_class="urgent"), line(0.0, target_s=-1)]
)
def test_a_line_that_is_no_arrival_is_named(bad: str) -> None:
    with pytest.raises(traces.BadTrace, match="line 2"):
        traces.read([line(0.0), bad])


@pytest.mark.parametrize(
    "arguments",
    [
        ["--replicas", "0"],
        ["--replicas", "-1"],
        ["--replicas", "1,,2"],
        ["--replicas", "1000000000"],
        ["--replicas", "many"],
        ["--seconds", "nan"],
        ["--seconds", "inf"],
        ["--seconds", "-1"],
        ["--device", "abacus"],
    ],
)
def test_arguments_that_make_no_simulation_are_refused_with_a_usage(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        simulate.main(arguments)
    assert ended.value.code == 2
    assert arguments[0] in capsys.readouterr().err


def test_a_recording_without_arrivals_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty.jsonl").write_text("\n\n")
    assert simulate.main(["--trace", str(tmp_path / "empty.jsonl")]) == 2
    assert "no arrivals" in capsys.readouterr().err
