"""Rectangles hold every row once, and little padding."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from serving.worker.engines.encoder.rectangles import CALL_TOKENS, MOST_CELLS, bucket, cut, cut_exactly

rows_of_lengths = st.lists(st.integers(1, 512), min_size=1, max_size=128)


@given(rows_of_lengths)
def test_every_row_is_in_one_rectangle_that_holds_it(lengths: list[int]) -> None:
    for rectangles in (cut(lengths, 512), cut_exactly(lengths)):
        assert sorted(row for each in rectangles for row in each.rows.tolist()) == list(range(len(lengths)))
        assert all(lengths[row] <= each.length for each in rectangles for row in each.rows.tolist())
        assert all(each.cells <= MOST_CELLS or len(each.rows) == 1 for each in rectangles)


@given(rows_of_lengths)
def test_exact_rectangles_have_no_padding(lengths: list[int]) -> None:
    assert sum(each.cells for each in cut_exactly(lengths)) == sum(lengths)


@given(rows_of_lengths)
def test_cutting_is_never_worse_than_one_rectangle_or_one_for_each_bucket(lengths: list[int]) -> None:
    rectangles = cut(lengths, 512)
    chosen = sum(each.cells + CALL_TOKENS for each in rectangles)
    pieces = sum(-(-each.cells // MOST_CELLS) for each in rectangles) + len(lengths)
    buckets = [bucket(length) for length in lengths]
    together = len(lengths) * max(buckets) + CALL_TOKENS
    apart = sum(buckets) + CALL_TOKENS * len(set(buckets))
    assert chosen <= min(together, apart) + CALL_TOKENS * pieces


def test_mixed_lengths_waste_little() -> None:
    lengths = np.random.default_rng(0).integers(8, 101, 128).tolist()
    cells = sum(each.cells for each in cut(lengths, 512))
    assert cells < 1.15 * sum(lengths)


def test_a_bucket_ends_where_the_model_ends() -> None:
    assert cut([500, 510], 510)[0].length == 510
