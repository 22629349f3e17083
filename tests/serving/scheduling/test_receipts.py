from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.scheduling.receipts import cost_micro, share_out_us


@given(st.integers(0, 10**12), st.lists(st.integers(0, 10**6), min_size=1, max_size=64))
def test_shares_sum_exactly_and_stay_within_one_microsecond_of_fair(
    total_us: int, weights: list[int]
) -> None:
    shares = share_out_us(total_us, weights)
    whole = sum(weights)
    assert sum(shares) == total_us
    if whole:
        assert all(
            abs(share - total_us * weight / whole) <= 1.001
            for share, weight in zip(shares, weights, strict=True)
        )


def test_rows_without_tokens_share_evenly() -> None:
    assert share_out_us(10, [0, 0, 0]) == [4, 3, 3]


def test_a_negative_share_is_refused() -> None:
    with pytest.raises(ValueError):
        share_out_us(-1, [1])
    with pytest.raises(ValueError):
        share_out_us(1, [1, -1])


def test_an_hour_of_the_device_costs_its_price() -> None:
    assert cost_micro(3_600_000_000, 2_500_000) == 2_500_000
    assert cost_micro(36_000, 2_500_000) == 25
    assert cost_micro(0, 2_500_000) == 0
