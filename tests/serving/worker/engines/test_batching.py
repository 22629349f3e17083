"""Rows of a model whose sizes are free count by their size: in batches, in costs, in shares."""

from __future__ import annotations

import numpy as np
import pytest

from serving.contract import CostCurve, TensorSpec
from serving.scheduling.cost import CostModel
from serving.worker import requests
from serving.worker.engines import batching
from serving.worker.engines.contract import EngineInput, Tensor
from tests.serving.worker.links import request

IMAGES = (TensorSpec(name="x", datatype="FP32", shape=(-1, 3, -1, -1)),)
FIXED = (TensorSpec(name="x", datatype="FP32", shape=(-1, 4)),)


def item(rows: int, *shape: int) -> EngineInput:
    return EngineInput(rows, {"x": Tensor("FP32", np.zeros((rows, *shape), np.float32))})


@pytest.mark.parametrize(("side", "units"), [(16, 1), (8, 1), (17, 2), (32, 4), (224, 196)])
def test_a_row_counts_by_its_size_where_sizes_are_free(side: int, units: int) -> None:
    images = item(2, 3, side, side)
    batching.check(images, IMAGES)
    assert images.tokens == 2 * units


def test_a_row_of_declared_size_counts_one() -> None:
    each = item(3, 4)
    batching.check(each, FIXED)
    assert each.tokens == 3


def test_parts_of_a_cut_request_count_by_size_too() -> None:
    images = item(5, 3, 32, 32)
    batching.check(images, IMAGES)
    owner = requests.Request(None, 1, 0.0, 0)
    works = requests.cut(owner, request(rows=5, max_batch_size=2), images, 64)
    assert [work.tokens for work in works] == [8, 8, 4]


def test_padding_up_to_the_least_rows_counts_by_the_size_of_its_group() -> None:
    small, large = item(1, 3, 16, 16), item(3, 3, 32, 32)
    for each in (small, large):
        batching.check(each, IMAGES)
    assert batching.executed_tokens([small, large], 1) == 1 + 12
    assert batching.executed_tokens([small, large], 4) == 4 + 16


def test_the_cost_model_tells_large_rows_from_small_ones() -> None:
    cost = CostModel(CostCurve(a_ms=2.0, b_ms_per_row=0.0, c_ms_per_token=0.5))
    for _ in range(200):
        for units in (1, 16, 64):
            cost.learn(4, 4 * units, 0.002 + 0.0001 * 4 * units)
    for units in (1, 16, 64):
        assert cost.predict_s(4, 4 * units) == pytest.approx(0.002 + 0.0001 * 4 * units, rel=0.1)
