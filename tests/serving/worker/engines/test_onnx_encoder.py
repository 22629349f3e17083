"""Encoders by onnxruntime compute what transformers computes, whatever shares their rectangle."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serving.worker.engines.contract import EngineOutput, LoadFailed
from serving.worker.engines.encoder.engine import EncoderEngine
from tests.serving.worker.engines import architectures
from tests.serving.worker.engines.running import run, text

pytestmark = pytest.mark.torch
pytest.importorskip("onnxruntime")

FAMILIES = ["bert", "roberta", "distilbert", "xlm-roberta"]
ROWS = [[2, 3, 4], [7], list(range(2, 42)), [9, 8, 7, 6, 5, 4, 3, 2], [7]]


def loaded(path: Path, **options: Any) -> EncoderEngine:
    engine = EncoderEngine(path, {"execution": "onnx", **options})
    engine.load()
    engine.warm_up()
    return engine


def answers(engine: EncoderEngine, name: str) -> np.ndarray:
    outcomes = run(engine, [text(row) for row in ROWS])
    assert all(isinstance(outcome, EngineOutput) for outcome in outcomes), outcomes
    return np.concatenate([outcome.tensors[name].array for outcome in outcomes])  # type: ignore[union-attr]


@pytest.mark.parametrize("model_type", FAMILIES)
def test_embeddings_equal_transformers(tmp_path: Path, model_type: str) -> None:
    model = architectures.save(tmp_path, model_type)
    engine = loaded(tmp_path)
    expected = np.stack([architectures.pooled(model, row) for row in ROWS])
    np.testing.assert_allclose(answers(engine, "embedding"), expected, atol=1e-5)
    assert "onnxruntime" in engine.notes()[0] and not engine.can_yield
    inputs = [text(row) for row in ROWS]
    assert engine.executed_tokens(inputs) >= sum(map(len, ROWS))


@pytest.mark.parametrize("model_type", FAMILIES)
def test_classes_equal_transformers(tmp_path: Path, model_type: str) -> None:
    model = architectures.save(tmp_path, model_type, classes=3)
    expected = np.stack([architectures.logits(model, row) for row in ROWS])
    np.testing.assert_allclose(answers(loaded(tmp_path), "logits"), expected, atol=1e-4)


def test_the_first_token_may_stand_for_the_row(tmp_path: Path) -> None:
    import torch

    model = architectures.save(tmp_path, "bert")
    with torch.inference_mode():
        states = [model(input_ids=torch.tensor([row])).last_hidden_state[0, 0].numpy() for row in ROWS]
    found = answers(loaded(tmp_path, pooling="cls", normalize=False), "embedding")
    np.testing.assert_allclose(found, np.stack(states), atol=1e-4)


def test_int8_stays_near(tmp_path: Path) -> None:
    architectures.save(tmp_path, "bert")
    exact = answers(loaded(tmp_path), "embedding")
    near = answers(loaded(tmp_path, quantize="int8"), "embedding")
    assert 0.9 < (exact * near).sum(1).min() < 1.0 - 1e-7


@pytest.mark.parametrize(
    ("model_type", "options", "word"),
    [
        ("bert", {"dtype": "bf16"}, "fp32 or int8"),
        ("bert", {"compile": True}, "compile"),
        ("electra", {}, "no graph for electra"),
    ],
)
def test_what_it_does_not_compute_is_refused(
    tmp_path: Path, model_type: str, options: dict, word: str
) -> None:
    architectures.save(tmp_path, model_type)
    with pytest.raises(LoadFailed, match=word):
        loaded(tmp_path, **options)


@pytest.mark.parametrize("library", ["onnx", "onnxruntime"])
def test_without_the_extra_it_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    architectures.save(tmp_path, "bert")
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(LoadFailed, match="requirements-onnx.txt"):
        loaded(tmp_path)
