"""ONNX models: named tensors, any batch, each request its own rows back; what cannot run says why."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from serving.errors import EngineFailed, InvalidTensor, OutOfMemory
from serving.worker.engines import onnx_runtime
from serving.worker.engines.contract import DeviceLost, EngineInput, EngineOutput, LoadFailed, Tensor
from serving.worker.engines.onnx import OnnxEngine
from serving.worker.isolation import IsolatedRun
from tests.serving.worker.engines import running

pytest.importorskip("onnxruntime")
graphs = pytest.importorskip("tests.serving.worker.engines.graphs")


def loaded(file: Path, **options: int) -> OnnxEngine:
    engine = OnnxEngine(file, options)
    engine.load()
    engine.warm_up()
    return engine


def scored_input(rows: int, value: float) -> EngineInput:
    image = np.full((rows, 3), value, np.float32)
    return EngineInput(rows, {"image": Tensor("FP32", image), "scale": Tensor("FP32", image[:, 0].copy())})


def of_x(datatype: str, array: np.ndarray) -> EngineInput:
    return EngineInput(len(array), {"x": Tensor(datatype, array)})


def y_of(engine: OnnxEngine, item: EngineInput) -> Tensor:
    outcome = running.run(engine, [item])[0]
    assert isinstance(outcome, EngineOutput)
    return outcome.tensors["y"]


def test_names_and_sizes_come_from_the_model(tmp_path: Path) -> None:
    inputs, outputs = loaded(graphs.scored(tmp_path)).signature()
    assert [(spec.name, spec.datatype, spec.shape) for spec in inputs] == [
        ("image", "FP32", (-1, 3)),
        ("scale", "FP32", (-1,)),
    ]
    assert [(spec.name, spec.shape) for spec in outputs] == [("scores", (-1, 3)), ("total", (-1,))]


def test_requests_run_together_and_get_their_own_rows(tmp_path: Path) -> None:
    engine = loaded(graphs.scored(tmp_path))
    outcomes = running.run(
        engine, [scored_input(rows, value) for rows, value in ((1, 2.0), (3, 3.0), (2, 4.0))]
    )
    for outcome, rows, value in zip(outcomes, (1, 3, 2), (2.0, 3.0, 4.0), strict=True):
        assert isinstance(outcome, EngineOutput)
        np.testing.assert_array_equal(outcome.tensors["scores"].array, np.full((rows, 3), value * value))
        np.testing.assert_array_equal(outcome.tensors["total"].array, np.full(rows, 3 * value))


def test_a_fixed_batch_is_padded(tmp_path: Path) -> None:
    engine = loaded(graphs.same(tmp_path, "FLOAT", [4, 2]))
    assert engine.max_batch_rows == 4
    array = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.testing.assert_array_equal(y_of(engine, of_x("FP32", array)).array, array)


def test_free_sizes_of_different_requests_do_not_meet(tmp_path: Path) -> None:
    engine = loaded(graphs.same(tmp_path, "FLOAT"))
    assert engine.signature().inputs[0].shape == (-1, -1)
    items = [of_x("FP32", np.ones((2, width), np.float32)) for width in (3, 7, 3)]
    shapes = [outcome.tensors["y"].array.shape for outcome in running.run(engine, items)]  # type: ignore[union-attr]
    assert shapes == [(2, 3), (2, 7), (2, 3)]


@pytest.mark.parametrize(
    ("kind", "datatype", "dtype"),
    [
        ("BOOL", "BOOL", np.bool_),
        ("UINT8", "UINT8", np.uint8),
        ("INT64", "INT64", np.int64),
        ("FLOAT16", "FP16", np.float16),
        ("DOUBLE", "FP64", np.float64),
        ("BFLOAT16", "BF16", np.uint16),
    ],
)
def test_datatypes_pass_unchanged(tmp_path: Path, kind: str, datatype: str, dtype: type) -> None:
    raw = np.array([[1, 0], [0, 1]], dtype)
    answer = y_of(loaded(graphs.same(tmp_path, kind)), of_x(datatype, raw))
    assert (answer.datatype, answer.array.dtype) == (datatype, raw.dtype)
    np.testing.assert_array_equal(answer.array, raw)


def test_texts_pass_as_utf8(tmp_path: Path) -> None:
    engine = loaded(graphs.same(tmp_path, "STRING"))
    texts = np.array([["é".encode(), b"b"]], object)
    assert y_of(engine, of_x("BYTES", texts)).array.tolist() == texts.tolist()
    with pytest.raises(InvalidTensor, match="not UTF-8"):
        running.run(engine, [of_x("BYTES", np.array([[b"\xff"]], object))])


@pytest.mark.parametrize(
    ("tensors", "word"),
    [
        ({"image": Tensor("FP32", np.ones((1, 3), np.float32))}, "scale is missing"),
        (scored_input(1, 1.0).tensors | {"extra": Tensor("FP32", np.ones(1))}, "extra is not an input"),
        (scored_input(1, 1.0).tensors | {"scale": Tensor("FP64", np.ones(1))}, "scale must be FP32"),
        (scored_input(1, 1.0).tensors | {"image": Tensor("FP32", np.ones((1, 4)))}, "image must have shape"),
    ],
)
def test_a_wrong_input_names_the_tensor(tmp_path: Path, tensors: dict, word: str) -> None:
    with pytest.raises(InvalidTensor, match=word):
        loaded(graphs.scored(tmp_path)).check(EngineInput(1, tensors))


def test_one_item_that_fails_in_the_graph_fails_alone(tmp_path: Path) -> None:
    engine = loaded(graphs.looked_up(tmp_path))
    items = [of_x("INT64", np.array([index], np.int64)) for index in (1, 99, 3)]
    first, poison, last = running.finish(IsolatedRun(engine).run(items))[0]
    assert isinstance(first, EngineOutput) and isinstance(last, EngineOutput)
    assert isinstance(poison, EngineFailed)
    assert last.tensors["y"].array.tolist() == [3.0]


def test_outputs_that_are_not_one_row_each_are_an_error(tmp_path: Path) -> None:
    engine = OnnxEngine(graphs.of_one_row_too_few(tmp_path), {})
    engine.load()
    outcome = running.run(engine, [of_x("FP32", np.ones((3, 2), np.float32))])[0]
    assert isinstance(outcome, EngineFailed) and "for 3 rows" in outcome.message


def test_a_model_without_a_common_batch_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LoadFailed, match="first dimensions differ"):
        loaded(graphs.of_two_batches(tmp_path))


def test_a_scalar_has_no_batch(tmp_path: Path) -> None:
    with pytest.raises(LoadFailed, match="batch dimension"):
        loaded(graphs.same(tmp_path, "FLOAT", []))


def test_an_unreadable_model_is_a_load_failure(tmp_path: Path) -> None:
    with pytest.raises(LoadFailed, match="found: none"):
        OnnxEngine(tmp_path, {}).load()
    (tmp_path / "model.onnx").write_bytes(b"not a model")
    with pytest.raises(LoadFailed, match="cannot load the model"):
        OnnxEngine(tmp_path, {}).load()


@pytest.mark.parametrize(
    ("device", "word"), [("cuda:0", "onnxruntime-gpu"), ("tpu", "cpu or cuda:N"), ("cuda:x", "cpu or cuda:N")]
)
def test_a_device_that_is_not_there_is_a_load_failure(tmp_path: Path, device: str, word: str) -> None:
    file = graphs.same(tmp_path, "FLOAT")
    with pytest.raises(LoadFailed, match=word):
        OnnxEngine(file, {}, device=device).load()


def test_without_the_extra_it_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(LoadFailed, match="pip install -r requirements-onnx.txt"):
        OnnxEngine(graphs.same(tmp_path, "FLOAT"), {}).load()


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("Failed to allocate memory for requested buffer of size 9", OutOfMemory),
        ("CUDA failure 2: out of memory ; GPU=0", OutOfMemory),
        ("CUDA failure 700: an illegal memory access was encountered", DeviceLost),
        ("Non-zero status code returned while running Gather node", EngineFailed),
    ],
)
def test_its_errors_are_told_apart(said: str, kind: type[Exception]) -> None:
    with pytest.raises(kind), onnx_runtime.translated_errors():
        raise RuntimeError(said)
