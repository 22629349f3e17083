"""What is counted: live series, the bill, and `/metrics`."""

from __future__ import annotations

import time

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from serving.contract import ProfileEntry, Report, UsageReport, UsageRow, VersionEntry
from serving.gateway.metrics import MAX_SERIES, OTHER, Metrics
from serving.gateway.routing import Lane
from serving.gateway.usage import Usage
from serving.telemetry.frames import STAGES
from serving.telemetry.histogram import Histogram
from serving.telemetry.prometheus import fold
from serving.telemetry.tally import Tally
from serving.wire import Stages
from tests.serving.gateway.harness import Harness

PRICE = 7_777_777


def stages(device_us: int = 100, **fields: int) -> Stages:
    parts = {"queue_us": 1, "batch_wait_us": 2, "execute_us": 3, "interrupted_us": 4, "post_us": 5} | fields
    return Stages(
        **parts,
        predicted_us=0,
        device_us=device_us,
        batch_id=1,
        batch_rows=4,
        batch_requests=2,
        batch_tokens=4,
        close="full",
    )


class Outbox:
    """Takes everything and delivers nothing until it is told to."""

    process = "gateway:test"

    def __init__(self) -> None:
        self.reports: dict[tuple[str, int], UsageReport] = {}
        self.waiting: set[str] = set()

    @property
    def rows(self) -> list[UsageRow]:
        return [row for report in self.reports.values() for row in report.rows]

    def put(self, body: UsageReport) -> None:
        self.reports["plain", len(self.reports)] = body

    def put_numbered(self, reports: list[Report]) -> None:
        """Idempotent by name and number, as the seam is."""
        for report in reports:
            assert isinstance(report.body, UsageReport)
            self.reports.setdefault((report.process, report.sequence), report.body)
            self.waiting.add(report.process)

    def holds(self, process: str) -> bool:
        return process in self.waiting


def lane(metrics: Metrics) -> Lane:
    version = VersionEntry(
        id="mv_a",
        model="m",
        number=1,
        engine="echo",
        artifact_sha256="",
        artifact_path="",
        price_micro_per_device_hour=PRICE,
    )
    series = metrics.series("tnt_a", "m", "mv_a", "infer", "standard", 1000)
    return Lane("tnt_a", version, ProfileEntry(id="pro_a", name="a"), series)


def test_a_frame_holds_what_was_counted_since_the_last_one() -> None:
    metrics = Metrics()
    recorder = lane(metrics).series
    recorder.answered(stages(), 10, 25, rows=2, tokens=7)
    recorder.answered(stages(), 10, 2500, rows=1, tokens=1)
    recorder.failed("queue_full")
    (series,) = metrics.take()
    assert (series.answered, series.kept, series.rows, series.tokens) == (2, 1, 3, 8)
    assert (series.failed, series.closes, series.shared) == ({"queue_full": 1}, {"full": 2}, 2)
    counted = Tally.of(series).histograms()
    assert set(counted) == {*STAGES, "batch_rows"} and counted["execute"].sum == 14
    assert metrics.take() == ()


def test_wrong_predictions_and_padding_add_up() -> None:
    metrics = Metrics()
    recorder = lane(metrics).series
    for executed_us, executed_tokens in ((900, 120), (1300, 80)):
        changes = {"execute_us": executed_us, "predicted_us": 1000, "batch_tokens": 80}
        each = msgspec.structs.replace(stages(), **changes, executed_tokens=executed_tokens)
        recorder.answered(each, 10, 25, rows=1, tokens=1)
    streamed = msgspec.structs.replace(stages(), execute_us=10**6)
    recorder.answered(streamed, 10, 25, rows=1, tokens=1, first_chunk_us=5)
    [(_, counts)] = metrics.totals()
    assert (counts.executed_us, counts.predicted_us, counts.misjudged_us) == (2200, 2000, 400)
    assert (counts.batch_tokens, counts.executed_tokens) == (160, 200)


@given(device_us=st.lists(st.integers(0, 10_000_000), max_size=50), cuts=st.integers(1, 5))
def test_money_is_exact_however_it_is_cut(device_us: list[int], cuts: int) -> None:
    outbox = Outbox()
    usage, metrics = Usage(outbox), Metrics()
    one = lane(metrics)
    live = 0
    for index, used_us in enumerate(device_us):
        usage.of(one, "key_a", 1000.0 + index).add_device_time(used_us, used_us * PRICE)
        one.series.used(used_us, used_us * PRICE)
        if index % cuts == 0:
            usage.flush()
            live += sum(series.cost_micro for series in metrics.take())
    usage.flush()
    live += sum(series.cost_micro for series in metrics.take())
    rows = outbox.rows
    exact = sum(device_us) * PRICE // 3_600_000_000
    assert sum(row.cost_micro for row in rows) == exact == live
    assert sum(row.device_us for row in rows) == sum(device_us)


def test_usage_is_kept_by_minute() -> None:
    outbox = Outbox()
    usage = Usage(outbox)
    for now in (59.9, 60.0, 119.0, 120.0):
        usage.of(lane(Metrics()), "key_a", now).count_failure()
    usage.flush()
    assert {row.minute: row.requests for row in outbox.rows} == {0: 1, 60: 2, 120: 1}


def test_unknown_models_fold_into_one_series() -> None:
    metrics = Metrics()
    for index in range(MAX_SERIES + 50):
        metrics.series("tnt_a", f"m{index}", "", "infer", "standard").failed("x")
    assert len(list(metrics.totals())) <= MAX_SERIES + 1
    folded = [counts for recorder, counts in metrics.totals() if recorder.labels.tenant_id == OTHER]
    assert folded[0].failed == {"x": 50}


@given(values=st.lists(st.integers(0, 10_000_000), max_size=100))
def test_classic_buckets_grow_and_end_at_the_count(values: list[int]) -> None:
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    counts = [count for _, count in fold(histogram, (0.001, 0.01, 0.1, 1.0), 1e6)]
    assert counts == sorted(counts) and counts[-1] == len(values)


async def test_the_bill_reaches_the_seam(echo: Harness) -> None:
    for _ in range(3):
        await echo.infer()
    await echo.infer({"inputs": []})
    await echo.stop()
    rows = [row for body in echo.seam.received() if isinstance(body, UsageReport) for row in body.rows]
    await echo.start()
    assert sum(row.requests for row in rows) == 4
    assert sum(row.failed for row in rows) == 1
    assert sum(row.rows for row in rows) == 3
    assert {(row.tenant_id, row.model, row.version_id) for row in rows} == {("tnt_a", "echo", "mv_echo")}
    assert {row.key_id for row in rows} == {"key_" + echo.token.split("_")[1]}
    assert all(abs(row.minute - time.time()) < 120 and row.minute % 60 == 0 for row in rows)


async def test_metrics_are_readable_by_prometheus(echo: Harness) -> None:
    await echo.infer()
    await echo.infer({"inputs": []})
    await echo.client.post("/v2/models/nothing/infer", headers=echo.auth)
    response = await echo.client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    families = {family.name: family for family in text_string_to_metric_families(response.text)}
    requests = {
        (sample.labels["tenant"], sample.labels["model"], sample.labels["outcome"]): sample.value
        for sample in families["tidegate_requests"].samples
        if sample.name.endswith("_total")
    }
    assert requests["a", "echo", "ok"] == 1
    assert requests["a", "echo", "invalid_request"] == 1
    assert requests["a", "other", "model_not_found"] == 1
    total = [
        sample.value
        for sample in families["tidegate_stage_seconds"].samples
        if sample.name.endswith("_count")
        and sample.labels["stage"] == "total"
        and sample.labels["model"] == "echo"
    ]
    assert total == [1.0]
    for name in ("tidegate_batch_tokens", "tidegate_executed_tokens", "tidegate_predicted_seconds"):
        totals = [each for each in families[name].samples if each.name == f"{name}_total"]
        assert max(each.value for each in totals if each.labels["model"] == "echo") > 0.0, name
    assert echo.token.split("_")[1] not in response.text
