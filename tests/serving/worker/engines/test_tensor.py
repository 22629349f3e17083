"""torch.export programs: named tensors, any batch, each request its own rows back."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
import pytest

from serving.errors import InvalidTensor
from serving.worker.engines.contract import EngineInput, EngineOutput, LoadFailed, Tensor
from tests.serving.worker.engines.running import run

if TYPE_CHECKING:
    from serving.worker.engines.tensor import TensorEngine

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def programs() -> ModuleType:
    """The programs of these tests; importing them imports torch, which other tests do without."""
    from tests.serving.worker.engines import programs

    return programs


@pytest.fixture
def scored(programs: ModuleType, tmp_path: Path) -> TensorEngine:
    return programs.scored(tmp_path)


def scored_input(rows: int, value: float) -> EngineInput:
    image = np.full((rows, 3), value, np.float32)
    return EngineInput(rows, {"image": Tensor("FP32", image), "scale": Tensor("FP32", image[:, 0].copy())})


def test_names_and_bounds_come_from_the_program(scored: TensorEngine) -> None:
    inputs, outputs = scored.signature()
    assert [(spec.name, spec.datatype, spec.shape) for spec in inputs] == [
        ("image", "FP32", (-1, 3)),
        ("scale", "FP32", (-1,)),
    ]
    assert [(spec.name, spec.shape) for spec in outputs] == [("scores", (-1, 3)), ("total", (-1,))]
    assert scored.max_batch_rows == 64


def test_requests_run_together_and_get_their_own_rows(scored: TensorEngine) -> None:
    outcomes = run(scored, [scored_input(rows, value) for rows, value in ((1, 2.0), (3, 3.0), (2, 4.0))])
    for outcome, rows, value in zip(outcomes, (1, 3, 2), (2.0, 3.0, 4.0), strict=True):
        assert isinstance(outcome, EngineOutput)
        np.testing.assert_array_equal(outcome.tensors["scores"].array, np.full((rows, 3), value * value))
        np.testing.assert_array_equal(outcome.tensors["total"].array, np.full(rows, 3 * value))


def test_a_fixed_batch_is_padded(programs: ModuleType, tmp_path: Path) -> None:
    engine = programs.doubled_in_fours(tmp_path)
    assert engine.max_batch_rows == 4
    item = EngineInput(3, {"x": Tensor("FP32", np.arange(6, dtype=np.float32).reshape(3, 2))})
    outcome = run(engine, [item])[0]
    assert isinstance(outcome, EngineOutput)
    np.testing.assert_array_equal(outcome.tensors["output"].array, np.arange(6).reshape(3, 2) * 2)


def test_free_sizes_of_different_requests_do_not_meet(programs: ModuleType, tmp_path: Path) -> None:
    engine = programs.doubled_of_any_width(tmp_path)
    assert engine.signature().inputs[0].shape == (-1, -1)
    items = [EngineInput(2, {"x": Tensor("FP32", np.ones((2, width), np.float32))}) for width in (3, 7, 3)]
    shapes = [outcome.tensors["output"].array.shape for outcome in run(engine, items)]  # type: ignore[union-attr]
    assert shapes == [(2, 3), (2, 7), (2, 3)]


@pytest.mark.parametrize(
    ("dtype", "datatype"),
    [("bfloat16", "BF16"), ("float16", "FP16"), ("bool", "BOOL"), ("int64", "INT64"), ("uint8", "UINT8")],
)
def test_datatypes_pass_unchanged(programs: ModuleType, tmp_path: Path, dtype: str, datatype: str) -> None:
    engine = programs.same(tmp_path, dtype)
    raw = np.array([[1, 0], [0, 1]], {"BF16": np.uint16, "FP16": np.float16}.get(datatype, dtype))
    outcome = run(engine, [EngineInput(2, {"x": Tensor(datatype, raw)})])[0]
    assert isinstance(outcome, EngineOutput)
    assert outcome.tensors["output"].datatype == datatype
    np.testing.assert_array_equal(outcome.tensors["output"].array, raw)


@pytest.mark.parametrize(
    ("tensors", "word"),
    [
        ({"image": Tensor("FP32", np.ones((1, 3), np.float32))}, "scale is missing"),
        (scored_input(1, 1.0).tensors | {"extra": Tensor("FP32", np.ones(1))}, "extra is not an input"),
        (scored_input(1, 1.0).tensors | {"scale": Tensor("FP64", np.ones(1))}, "scale must be FP32"),
        (scored_input(1, 1.0).tensors | {"image": Tensor("FP32", np.ones((1, 4)))}, "image must have shape"),
    ],
)
def test_a_wrong_input_names_the_tensor(scored: TensorEngine, tensors: dict, word: str) -> None:
    with pytest.raises(InvalidTensor, match=word):
        scored.check(EngineInput(1, tensors))


def test_an_unreadable_program_is_a_load_failure(programs: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(LoadFailed, match="found: none"):
        programs.TensorEngine(tmp_path, {}).load()
    (tmp_path / "model.pt2").write_bytes(b"not a program")
    with pytest.raises(LoadFailed, match="not a readable"):
        programs.TensorEngine(tmp_path, {}).load()


def test_a_program_without_a_common_batch_is_refused(programs: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(LoadFailed, match="first dimensions differ"):
        programs.of_two_batches(tmp_path)
