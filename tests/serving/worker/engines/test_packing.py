"""Packing loses nothing, for any lengths in any order."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from serving.worker.engines.encoder.packing import first_tokens, grid, pack, padded_tokens, short_rows

rows_of_ids = st.lists(st.lists(st.integers(1, 30000), min_size=1, max_size=40), min_size=1, max_size=20)


@given(rows_of_ids)
def test_every_row_is_found_again_at_its_start(rows: list[list[int]]) -> None:
    packing = pack([np.array(row, np.int32) for row in rows], [len(row) for row in rows])
    for packed_index, given_index in enumerate(packing.order.tolist()):
        start = int(packing.starts[packed_index])
        row = rows[given_index]
        assert packing.ids[start : start + len(row)].tolist() == row
        assert packing.positions[start : start + len(row)].tolist() == list(range(len(row)))


@given(rows_of_ids)
def test_the_groups_cover_the_tokens_without_a_gap(rows: list[list[int]]) -> None:
    packing = pack([np.array([token for row in rows for token in row])], [len(row) for row in rows])
    assert [group.start for group in packing.groups] == [0, *(group.stop for group in packing.groups[:-1])]
    assert packing.groups[-1].stop == packing.tokens == sum(len(row) for row in rows)
    assert len({group.length for group in packing.groups}) == len(packing.groups)
    assert packing.padded == padded_tokens(packing.tokens)


@given(st.integers(1, 10_000))
def test_padding_is_nothing_for_small_batches_and_little_for_large_ones(tokens: int) -> None:
    padding = padded_tokens(tokens) - tokens
    assert padding >= 0
    assert padding == 0 or (padding < 8 if tokens <= 512 else padding <= 0.035 * tokens)
    assert padding == 0 or tokens > 64


def test_few_enough_sizes_are_warmed_up_and_each_can_be_made_of_short_rows() -> None:
    sizes = grid(1024)
    assert len(sizes) < 200
    assert all(sum(short_rows(size)) == size == padded_tokens(size) for size in sizes)


@given(rows_of_ids)
def test_first_tokens_alone_are_packed_in_the_same_order(rows: list[list[int]]) -> None:
    packing = pack([np.array(row, np.int32) for row in rows], [len(row) for row in rows])
    indices, alone = first_tokens(packing)
    assert len(indices) == padded_tokens(len(rows)) == alone.padded
    assert alone.ids[alone.starts].tolist() == [rows[given_index][0] for given_index in alone.order.tolist()]
    assert alone.rows == alone.tokens == len(rows)
