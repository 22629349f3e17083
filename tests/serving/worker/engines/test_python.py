"""Trusted code: batched along dimension 0, and its faults stay its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from serving.errors import InvalidTensor
from serving.worker.engines.contract import EngineInput, EngineOutput, LoadFailed, Tensor
from serving.worker.engines.python import PythonEngine
from tests.serving.worker.engines.running import run

MODEL = """
import numpy as np
import beside

class Model:
    signature = {
        "inputs": [{"name": "text", "datatype": "BYTES", "shape": [-1]}],
        "outputs": [{"name": "size", "datatype": "INT64", "shape": [-1]}],
    }
    def __init__(self, path, device, options):
        self.factor = options.get("factor", 1)
    def predict(self, tensors):
        return {"size": np.array([len(item) * self.factor for item in tensors["text"]]) + beside.ZERO}
"""


def engine(path: Path, source: str = MODEL, **options: int) -> PythonEngine:
    (path / "model.py").write_text(source)
    (path / "beside.py").write_text("ZERO = 0\n")
    made = PythonEngine(path, options)
    made.load()
    made.warm_up()
    return made


def texts(*items: bytes) -> EngineInput:
    array = np.empty(len(items), object)
    array[:] = items
    return EngineInput(len(items), {"text": Tensor("BYTES", array)})


def test_requests_are_joined_and_dealt_back(tmp_path: Path) -> None:
    outcomes = run(engine(tmp_path, factor=2), [texts(b"a", b"bb"), texts(b"ccc")])
    sizes = [outcome.tensors["size"].array.tolist() for outcome in outcomes]  # type: ignore[union-attr]
    assert sizes == [[2, 4], [6]]


def test_a_wrong_number_of_rows_is_an_error(tmp_path: Path) -> None:
    made = engine(tmp_path)
    made._model.predict = lambda tensors: {"size": np.zeros(1)}
    outcomes = run(made, [texts(b"a", b"b")])
    assert not isinstance(outcomes[0], EngineOutput)


def test_inputs_are_checked_against_the_declared_signature(tmp_path: Path) -> None:
    with pytest.raises(InvalidTensor, match="text must be BYTES"):
        engine(tmp_path).check(EngineInput(1, {"text": Tensor("FP32", np.zeros(1, np.float32))}))


@pytest.mark.parametrize(
    ("source", "word"),
    [
        ("raise ValueError('no weights')", "no weights"),
        ("class Model:\n def __init__(self, *a): pass", "signature"),
        (MODEL.replace('"shape": [-1]', '"shape": [4]'), "first dimension"),
        (MODEL.replace("BYTES", "TEXT"), "TEXT"),
        (
            MODEL.replace("def predict(self, tensors):", "def predict(self, tensors):\n        1 / 0"),
            "predict",
        ),
    ],
)
def test_code_that_does_not_work_is_a_load_failure(tmp_path: Path, source: str, word: str) -> None:
    with pytest.raises(LoadFailed, match=word):
        engine(tmp_path, source)


def test_a_missing_model_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(LoadFailed, match=r"model\.py"):
        PythonEngine(tmp_path, {}).load()
