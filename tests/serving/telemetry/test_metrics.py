"""The catalog: every metric means what its name says, and is None where nothing was."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.telemetry.frames import slots_of
from serving.telemetry.histogram import Histogram
from serving.telemetry.live import ReplicaRow
from serving.telemetry.metrics import METRICS, REPLICA_METRICS
from serving.telemetry.tally import BROKEN_CODES, ERROR_CODES, REFUSAL_CODES, Tally

DOCS = Path(__file__).parents[3] / "docs" / "metrics.md"
SUFFIXES = {"ms": "_ms", "1/s": "_s", "ms/s": "_s", "micro/s": "_s", "bytes": "_bytes"}


def histogram(*values: int) -> Histogram:
    made = Histogram()
    for value in values:
        made.record(value)
    return made


BUSY = Tally(
    answered=8, kept=6, rows=16, tokens=80, device_us=4_000, cost_micro=40, shared=4, executed_us=1_000,
    predicted_us=900, misjudged_us=100, batch_tokens=90, executed_tokens=120, pending_s=30,
    failed={"queue_full": 1, "engine_failed": 1, "invalid_json": 6},
    slots=slots_of([("total", histogram(*[10_000] * 8)), ("batch_rows", histogram(*[4] * 8))]),
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("requests_s", 1.6), ("answered_s", 0.8), ("errors_s", 0.1), ("refusals_s", 0.1),
        ("error_share", 0.0625), ("refusal_share", 0.0625), ("kept_share", 0.6), ("broken_share", 0.4),
        ("batch_rows_mean", 4), ("shared_share", 0.5), ("batch_efficiency", 0.75), ("misjudged_share", 0.1),
        ("rows_s", 1.6), ("tokens_s", 8), ("device_ms_s", 0.4), ("device_ms_per_request", 0.5),
        ("cost_micro_s", 4), ("cost_micro_per_request", 5), ("pending", 3), ("total_mean_ms", 10),
    ],
)  # fmt: skip
def test_a_metric_is_what_its_name_says(name: str, value: float) -> None:
    assert METRICS[name].read(BUSY, 10.0) == pytest.approx(value)


@pytest.mark.parametrize("name", METRICS)
def test_without_evidence_there_is_no_value(name: str) -> None:
    assert METRICS[name].read(Tally(), 0) is None


@pytest.mark.parametrize("name", METRICS | REPLICA_METRICS)
def test_a_name_ends_in_its_unit(name: str) -> None:
    metric = METRICS.get(name) or REPLICA_METRICS[name]
    assert name.endswith(SUFFIXES.get(metric.unit, "")) or name == "device_ms_per_request"
    assert metric.text and not metric.text.endswith(".")


def test_replicas_say_their_own() -> None:
    row = ReplicaRow(
        replica_id="rep_a", model="m", version_id="mv_a", queued=3, running=2, busy=0.5, batches_s=4, rows_s=8,
        tokens_s=80,
    )  # fmt: skip
    values = {name: metric.read(row) for name, metric in REPLICA_METRICS.items()}
    assert (values["replica_busy_share"], values["replica_queued_rows"]) == (0.5, 3)
    assert values["replica_memory_bytes"] is values["replica_efficiency"] is None


def test_what_was_turned_away_did_not_go_wrong() -> None:
    assert not ERROR_CODES & REFUSAL_CODES


def test_a_clients_own_limits_break_no_promise() -> None:
    own = {"rate_limited", "concurrency_exceeded", "queue_share_full", "insufficient_quota", "quota_reserved"}
    assert own <= REFUSAL_CODES and not own & BROKEN_CODES


def test_the_documents_list_every_metric_as_it_is() -> None:
    every = [*METRICS.values(), *REPLICA_METRICS.values()]
    lines = [f"| `{one.name}` | {one.unit} | {one.text} | {one.direction} |" for one in every]
    assert [line for line in DOCS.read_text().splitlines() if line.startswith("| `")] == lines
