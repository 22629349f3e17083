"""One candidate measured in this process: a row in any case, with figures or with a reason."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from serving.contract import SampleTensor, TuningRow, VersionEntry
from serving.worker.engines.contract import EngineInput, Tensor
from serving.worker.engines.echo import EchoEngine
from serving.worker.spec import TuningSpec, WorkerSpec
from serving.worker.tuning import candidate, speed
from serving.worker.tuning.samples import items

SAMPLE = SampleTensor(name="x", datatype="FP32", shape=(3, 2), data=(1, 2, 3.5, 4, 5, 6))


def version(engine: str = "echo", path: str = "", **options: int) -> VersionEntry:
    return VersionEntry(
        id="mv_1", model="m", number=1, engine=engine, artifact_sha256="", artifact_path=path, options=options,  # type: ignore[arg-type]
    )  # fmt: skip


def measured(tmp_path: Path, index: int = 0, tensors: tuple = (), **given) -> TuningRow:
    tuning = TuningSpec(index=index, reference=str(tmp_path / "r.npz"), tensors=tensors)
    return candidate.measure(WorkerSpec(version=version(**given), tuning=tuning), tuning)


@pytest.fixture(autouse=True)
def briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "ENOUGH_S", 0.0)


def test_the_reference_is_measured_and_kept_for_the_others(tmp_path: Path) -> None:
    first = measured(tmp_path, tensors=(SAMPLE,), max_batch_rows=8)
    assert first.ok, first.reason
    assert sorted(first.rows_per_s) == [1, 8]
    assert first.p50_ms and first.load_s is not None and first.memory_bytes is not None
    second = measured(tmp_path, 1, (SAMPLE,))
    assert second.agreement is not None and second.agreement.cosine_min == pytest.approx(1.0)
    other = measured(tmp_path, 2, (SampleTensor(name="x", datatype="FP32", shape=(3, 1), data=(1, 2, 3)),))
    assert not other.ok and "other names or sizes" in other.reason


def test_without_the_reference_there_is_nothing_to_compare_with(tmp_path: Path) -> None:
    row = measured(tmp_path, 1)
    assert not row.ok and "reference" in row.reason


@pytest.mark.parametrize(
    ("sample", "word"),
    [
        (SampleTensor(name="y", datatype="FP32", shape=(1, 1), data=(1,)), "named x"),
        (SampleTensor(name="x", datatype="FP99", shape=(1, 1), data=(1,)), "FP99"),
        (SampleTensor(name="x", datatype="FP32", shape=(2, 1), data=(1,)), "reshape"),
        (SampleTensor(name="x", datatype="FP32", shape=(1, 1), data=("a",)), "could not convert"),
        (SampleTensor(name="x", datatype="FP32", shape=(), data=(1,)), "batch dimension"),
    ],
)
def test_samples_that_do_not_fit_are_a_reason(tmp_path: Path, sample: SampleTensor, word: str) -> None:
    row = measured(tmp_path, tensors=(sample,))
    assert not row.ok and word in row.reason


def test_a_version_that_does_not_load_is_a_reason(tmp_path: Path) -> None:
    row = measured(tmp_path, engine="onnx", path=str(tmp_path))
    assert not row.ok and "found: none" in row.reason


def test_own_samples_are_always_the_same() -> None:
    one, other = (items(EchoEngine(), version(), (), ())[5].tensors["x"].array for _ in range(2))
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("count", "rows"), [(1, 32), (5, 8), (16, 8), (33, 32)])
def test_batches_have_every_item_and_are_full(count: int, rows: int) -> None:
    made = [EngineInput(1, {"x": Tensor("FP32", np.full((1, 1), number))}) for number in range(count)]
    batches = speed.batches_of(made, rows)
    assert {len(batch) for batch in batches} == {rows}
    assert {id(item) for batch in batches for item in batch} == {id(item) for item in made}
