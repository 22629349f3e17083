"""Agreement: what two runs over the same samples have in common, and the file between them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.errors import EngineFailed
from serving.worker.engines.contract import EngineOutput, Tensor
from serving.worker.tuning.agreement import compare, load, rows_of, save


def vectors(*rows: list[float]) -> dict:
    return rows_of([EngineOutput({"y": Tensor("FP32", np.array([row], np.float32))}) for row in rows])


def labels(*rows: bytes) -> dict:
    return rows_of([EngineOutput({"label": Tensor("BYTES", np.array([row], object))}) for row in rows])


numbers = st.floats(-1e6, 1e6, width=32)


@given(st.lists(st.lists(numbers, min_size=3, max_size=3), min_size=1, max_size=8))
def test_a_run_agrees_with_itself(rows: list) -> None:
    found = compare(vectors(*rows), vectors(*rows))
    assert found.cosine_min == pytest.approx(1.0, abs=1e-6)
    assert (found.max_abs_error, found.label_agreement) == (0.0, None)


@given(st.lists(st.lists(numbers, min_size=3, max_size=3), min_size=2, max_size=2))
def test_a_cosine_is_from_minus_one_to_one(rows: list) -> None:
    found = compare(vectors(rows[0]), vectors(rows[1]))
    assert -1.0 <= found.cosine_min <= found.cosine_mean <= 1.0  # type: ignore[operator]


def test_the_worst_row_counts() -> None:
    found = compare(vectors([1, 0], [0, 1]), vectors([1, 0], [1, 0]))
    assert (found.cosine_min, found.cosine_mean, found.max_abs_error) == (0.0, 0.5, 1.0)


def test_single_numbers_have_no_cosine() -> None:
    found = compare(vectors([0.5], [0.25]), vectors([0.5], [0.75]))
    assert (found.cosine_min, found.max_abs_error) == (None, 0.5)


def test_labels_agree_by_row() -> None:
    assert compare(labels(b"a", b"bb", b"c"), labels(b"a", b"b", b"c")).label_agreement == pytest.approx(
        2 / 3
    )


def test_other_outputs_are_an_error() -> None:
    with pytest.raises(EngineFailed, match="other names or sizes"):
        compare(vectors([1, 2]), vectors([1, 2, 3]))


def test_values_that_are_not_finite_are_an_error() -> None:
    with pytest.raises(EngineFailed, match="not finite"):
        vectors([1.0, float("nan")])


@pytest.mark.parametrize(
    ("datatype", "raw"),
    [("BF16", np.array([[0x3F80, 0x4000]], np.uint16)), ("FP16", np.ones((1, 2), np.float16))],
)
def test_half_formats_are_compared_as_numbers(datatype: str, raw: np.ndarray) -> None:
    rows = rows_of([EngineOutput({"y": Tensor(datatype, raw)})])
    assert rows["y"][0].tolist() == ([1.0, 2.0] if datatype == "BF16" else [1.0, 1.0])


def test_rows_of_any_size_survive_the_file(tmp_path: Path) -> None:
    rows = vectors([1, 2], [3], [4, 5, 6]) | labels(b"one", b"", b"three")
    save(tmp_path / "r.npz", rows)
    found = load(tmp_path / "r.npz")
    assert {name: [row.tolist() for row in flats] for name, flats in found.items()} == {
        "y": [[1.0, 2.0], [3.0], [4.0, 5.0, 6.0]],
        "label": [[b"one"], [b""], [b"three"]],
    }
    (tmp_path / "bad.npz").write_bytes(b"no archive")
    with pytest.raises((OSError, ValueError)):
        load(tmp_path / "bad.npz")
