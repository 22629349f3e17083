from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.contract import CostCurve
from serving.scheduling.cost import CostModel
from tests.serving.scheduling.works import CURVE


def true_s(tokens: int, *, a_ms: float = 3.5, c_ms: float = 0.225) -> float:
    return (a_ms + c_ms * tokens) / 1e3


def teach(
    model: CostModel, count: int, rng: random.Random, *, scale: float = 1.0, noise: float = 0.03
) -> None:
    for _ in range(count):
        tokens = rng.choice((12, 24, 60, 200, 384))
        model.learn(max(1, tokens // 12), tokens, true_s(tokens) * scale * (1 + rng.uniform(-noise, noise)))


def test_a_validated_curve_predicts_before_anything_ran() -> None:
    model = CostModel(CURVE)
    assert model.is_trusted
    assert model.predict_s(32, 384) == pytest.approx(0.0899)


def test_without_a_curve_the_model_is_a_guess_until_it_has_seen_batches() -> None:
    model = CostModel(None)
    assert not model.is_trusted
    teach(model, 60, random.Random(1))
    assert model.is_trusted
    assert model.predict_s(32, 384) == pytest.approx(true_s(384), rel=0.05)
    assert model.predict_s(1, 12) == pytest.approx(true_s(12), rel=0.1)


def test_a_machine_that_became_twice_as_slow_is_learnt() -> None:
    model = CostModel(CURVE)
    teach(model, 400, random.Random(2), scale=2.0)
    assert model.predict_s(32, 384) == pytest.approx(2 * true_s(384), rel=0.1)


def test_a_slower_machine_is_noticed_within_some_dozen_batches() -> None:
    model = CostModel(CURVE)
    teach(model, 400, random.Random(2))
    teach(model, 60, random.Random(3), scale=2.0)
    assert model.predict_s(32, 384) == pytest.approx(2 * true_s(384), rel=0.15)


def test_one_stalled_batch_hardly_moves_the_fit() -> None:
    model = CostModel(CURVE)
    teach(model, 200, random.Random(3))
    before = model.predict_s(32, 384)
    model.learn(32, 384, before * 30)
    assert model.predict_s(32, 384) == pytest.approx(before, rel=0.05)


def test_batches_of_one_size_only_leave_the_split_of_the_curve_alone() -> None:
    model = CostModel(CURVE)
    for _ in range(2000):
        model.learn(32, 384, true_s(384))
    assert model.predict_s(1, 12) == pytest.approx(true_s(12), rel=0.1)


def test_failing_predictions_shrink_the_guard_and_good_ones_restore_it() -> None:
    model = CostModel(CURVE)
    for _ in range(5):
        model.learn(32, 384, true_s(384) * 40)
    assert model.guard < 0.5
    teach(model, 300, random.Random(4))
    assert model.guard == 1.0


def test_the_margin_is_the_95th_percentile_of_underestimates() -> None:
    model = CostModel(CURVE)
    rng = random.Random(5)
    for _ in range(256):
        model.learn(32, 384, true_s(384) * (1.3 if rng.random() < 0.2 else 1.0))
    assert 0.1 < model.margin_s(1.0) < 0.4


def test_the_throughput_optimal_size_follows_the_curve() -> None:
    flat = CostModel(CostCurve(a_ms=20.0, b_ms_per_row=0.0, c_ms_per_token=0.1))
    steep = CostModel(CostCurve(a_ms=1.0, b_ms_per_row=0.0, c_ms_per_token=0.5))
    assert flat.efficient_tokens(0.97) > 50 * steep.efficient_tokens(0.97)


@given(
    st.lists(
        st.tuples(st.integers(1, 64), st.integers(0, 4096), st.floats(0.0, 100.0)), min_size=1, max_size=60
    )
)
def test_no_history_makes_a_prediction_negative_or_undefined(batches: list[tuple[int, int, float]]) -> None:
    model = CostModel(CURVE)
    for rows, tokens, execute_s in batches:
        model.learn(rows, tokens, execute_s)
        for size in (0, 1, 512, 65536):
            assert 0.0 <= model.predict_s(1, size) < float("inf")
        assert model.tokens_within(0.05) >= 0.0
        assert model.efficient_tokens(0.97) >= 0.0
        assert 0.0 < model.guard <= 1.0
