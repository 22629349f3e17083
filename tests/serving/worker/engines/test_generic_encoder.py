"""Encoders without a forward of ours: packed where that is right, padded where not, equal either way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serving.worker.engines.contract import LoadFailed
from serving.worker.engines.encoder.engine import EncoderEngine
from tests.serving.worker.engines import architectures
from tests.serving.worker.engines.running import finish, run, text

pytestmark = pytest.mark.torch

ROWS = [[5, 6, 7], [8], list(range(9, 49)), [9, 10, 11], list(range(60, 71)), [7, 6, 5]]

PACKED = ["bert", "roberta", "xlm-roberta", "camembert", "electra", "albert", "modernbert", "ernie"]
PADDED = ["mpnet", "deberta-v2", "mobilebert", "convbert"]


def loaded(path: Path, **options: Any) -> EncoderEngine:
    engine = EncoderEngine(path, options)
    engine.load()
    return engine


@pytest.fixture
def no_own_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serving.worker.engines.encoder.architectures.find", lambda settings: None)


@pytest.mark.usefixtures("no_own_forward")
@pytest.mark.parametrize("model_type", PACKED + PADDED)
def test_embeddings_equal_transformers(tmp_path: Path, model_type: str) -> None:
    model = architectures.save(tmp_path, model_type)
    engine = loaded(tmp_path)
    got = run(engine, [text(*ROWS)])[0].tensors["embedding"].array  # type: ignore[union-attr]
    expected = np.stack([architectures.pooled(model, row) for row in ROWS])
    np.testing.assert_allclose(got, expected, atol=1e-5)
    assert ("Packed" in engine.notes()[0]) == (model_type in PACKED), engine.notes()


@pytest.mark.usefixtures("no_own_forward")
@pytest.mark.parametrize("model_type", ["bert", "roberta", "electra", "modernbert", "deberta-v2"])
def test_classes_equal_transformers(tmp_path: Path, model_type: str) -> None:
    model = architectures.save(tmp_path, model_type, classes=3)
    outputs = run(loaded(tmp_path), [text(*ROWS)])[0].tensors  # type: ignore[union-attr]
    expected = np.stack([architectures.logits(model, row) for row in ROWS])
    np.testing.assert_allclose(outputs["logits"].array, expected, atol=1e-5 * max(1, np.abs(expected).max()))


def test_a_local_window_is_kept_inside_long_rows(tmp_path: Path) -> None:
    model = architectures.save(tmp_path, "modernbert")
    rows = [list(np.random.default_rng(0).integers(3, 120, length)) for length in (120, 40, 7)]
    engine = loaded(tmp_path, execution="packed")
    got = run(engine, [text(*rows)])[0].tensors["embedding"].array  # type: ignore[union-attr]
    np.testing.assert_allclose(got, [architectures.pooled(model, row) for row in rows], atol=1e-5)


def test_the_reason_for_padding_is_told(tmp_path: Path) -> None:
    architectures.save(tmp_path, "mpnet")
    assert "mpnet does not run packed" in loaded(tmp_path).notes()[0]
    with pytest.raises(LoadFailed, match=r"execution=packed.*mpnet"):
        loaded(tmp_path, execution="packed")


def test_padded_execution_may_be_chosen(tmp_path: Path) -> None:
    model = architectures.save(tmp_path, "bert")
    engine = loaded(tmp_path, execution="padded")
    assert "option execution" in engine.notes()[0] and not engine.can_yield
    got = run(engine, [text(*ROWS)])[0].tensors["embedding"].array  # type: ignore[union-attr]
    np.testing.assert_allclose(got, [architectures.pooled(model, row) for row in ROWS], atol=1e-5)


def test_padded_execution_pauses_between_rectangles(tmp_path: Path) -> None:
    architectures.save(tmp_path, "mpnet")
    engine = loaded(tmp_path)
    short, long = [[5, 6, 7]] * 8, [list(range(5, 45))] * 8
    assert finish(engine.run([text(*short)]))[1] == 0
    assert finish(engine.run([text(*short, *long)]))[1] == 1
    assert engine.executed_tokens([text(*short, *long)]) == 8 * 8 + 8 * 40


def test_a_half_precision_of_a_generic_encoder_stays_close(tmp_path: Path) -> None:
    model = architectures.save(tmp_path, "electra")
    engine = loaded(tmp_path, dtype="bf16")
    got = run(engine, [text(*ROWS)])[0].tensors["embedding"].array  # type: ignore[union-attr]
    assert (np.sum(got * [architectures.pooled(model, row) for row in ROWS], axis=1) > 0.999).all()


def test_compiled_execution_equals_transformers_for_every_shape_without_compiling_again(
    tmp_path: Path,
) -> None:
    import torch._dynamo.utils as compiler

    model = architectures.save(tmp_path, "bert")
    engine = loaded(tmp_path, compile=True)
    engine.warm_up()
    graphs = compiler.counters["stats"]["unique_graphs"]
    for rows in (ROWS, [[5]], [[7, 8]] * 9):
        got = run(engine, [text(*rows)])[0].tensors["embedding"].array  # type: ignore[union-attr]
        expected = [architectures.pooled(model, row) for row in rows]
        np.testing.assert_allclose(got, expected, atol=1e-5)
    assert compiler.counters["stats"]["unique_graphs"] == graphs
    assert engine.executed_tokens([text([5])]) == 16


def test_compiled_execution_is_padded(tmp_path: Path) -> None:
    architectures.save(tmp_path, "bert")
    with pytest.raises(LoadFailed, match="compile"):
        loaded(tmp_path, compile=True, execution="packed")
    with pytest.raises(LoadFailed, match="compile"):
        loaded(tmp_path, compile=True, quantize="int8")
