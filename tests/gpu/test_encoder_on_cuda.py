"""What only a device can show: parity with the CPU, graphs, pinned copies, out of memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serving.errors import OutOfMemory
from serving.worker.engines.contract import EngineInput, LoadFailed
from serving.worker.engines.encoder.engine import EncoderEngine
from tests.serving.worker.engines import architectures
from tests.serving.worker.engines.running import run, text

pytestmark = pytest.mark.torch

SIZES = {"hidden_size": 128, "intermediate_size": 256, "max_position_embeddings": 300}
"""Heads of 32 numbers, as kernels like them."""


def loaded(path: Path, device: str = "cuda:0", **options: Any) -> EncoderEngine:
    engine = EncoderEngine(path, options, device=device)
    engine.load()
    engine.warm_up()
    return engine


def embeddings(engine: EncoderEngine, *items: EngineInput) -> np.ndarray:
    outcomes = run(engine, items)
    return np.concatenate([outcome.tensors["embedding"].array for outcome in outcomes])  # type: ignore[union-attr]


def batches() -> list[EngineInput]:
    draw = np.random.default_rng(0)
    lengths = ([1], [7, 7, 7], draw.integers(1, 60, 12), draw.integers(8, 250, 32), [250] * 8)
    return [text(*(draw.integers(5, 120, length).tolist() for length in each)) for each in lengths]


@pytest.mark.parametrize("cuda_graphs", [True, False])
def test_fp32_equals_the_cpu(tmp_path: Path, cuda_graphs: bool) -> None:
    architectures.save(tmp_path, "bert", **SIZES)
    here, there = loaded(tmp_path, "cpu"), loaded(tmp_path, cuda_graphs=cuda_graphs)
    assert any("graphs" in note for note in there.notes()) == cuda_graphs
    for item in batches():
        np.testing.assert_allclose(embeddings(there, item), embeddings(here, item), atol=1e-5)


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("cuda_graphs", [True, False])
def test_half_precisions_stay_close(tmp_path: Path, dtype: str, cuda_graphs: bool) -> None:
    architectures.save(tmp_path, "bert", **SIZES)
    here, there = loaded(tmp_path, "cpu"), loaded(tmp_path, dtype=dtype, cuda_graphs=cuda_graphs)
    for item in batches():
        assert (np.sum(embeddings(there, item) * embeddings(here, item), axis=1) > 0.998).all()


def test_half_precisions_use_the_variable_length_kernel() -> None:
    import torch

    from serving.worker.engines.encoder.attention import can_vary

    assert can_vary(torch.device("cuda:0"), torch.bfloat16)


@pytest.mark.parametrize("model_type", ["electra", "modernbert", "mpnet"])
def test_generic_encoders_equal_the_cpu(tmp_path: Path, model_type: str) -> None:
    architectures.save(tmp_path, model_type, **SIZES)
    here, there = loaded(tmp_path, "cpu"), loaded(tmp_path)
    for item in batches():
        np.testing.assert_allclose(embeddings(there, item), embeddings(here, item), atol=1e-5)


def test_pinned_copies_arrive_whole() -> None:
    import torch

    from serving.worker.engines.encoder.transfer import transfer_for

    transfer = transfer_for(torch.device("cuda:0"))
    arrays = [np.random.default_rng(number).integers(0, 1 << 40, 200_000) for number in range(20)]
    fetches = [transfer.to_host(transfer.to_device([array])[0] * 2) for array in arrays]
    for array, fetch in zip(arrays, fetches, strict=True):
        np.testing.assert_array_equal(fetch(), array * 2)


def test_out_of_memory_is_told_and_survived(tmp_path: Path) -> None:
    import torch

    architectures.save(tmp_path, "bert", **SIZES)
    engine = loaded(tmp_path, cuda_graphs=False)
    item = batches()[0]
    before = embeddings(engine, item)
    torch.cuda.empty_cache()
    free_bytes, all_bytes = torch.cuda.mem_get_info()
    torch.cuda.set_per_process_memory_fraction((all_bytes - free_bytes + (64 << 20)) / all_bytes)
    try:
        with pytest.raises(OutOfMemory):
            run(engine, [text(*[[5] * 250] * 3000)])
        np.testing.assert_allclose(embeddings(engine, item), before, atol=1e-5)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def test_int8_is_refused(tmp_path: Path) -> None:
    architectures.save(tmp_path, "bert", **SIZES)
    with pytest.raises(LoadFailed, match="int8"):
        loaded(tmp_path, quantize="int8")
