from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.scheduling.receipts import Departures, cost_micro, share_out_us
from serving.scheduling.work import Batch
from tests.serving.scheduling.works import work


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


@given(st.data())
def test_works_that_leave_early_pay_for_their_time_and_all_shares_sum(data: st.DataObject) -> None:
    tokens = data.draw(st.lists(st.integers(0, 1000), min_size=2, max_size=16))
    departures = Departures(_batch(tokens))
    order = data.draw(st.permutations(range(len(tokens))))
    leaving = data.draw(st.integers(0, len(tokens) - 1))
    now_us, paid = 0, {}
    for position in order[:leaving]:
        now_us += data.draw(st.integers(0, 10**6))
        paid[position] = departures.leave(position, now_us)
        with pytest.raises(ValueError):
            departures.leave(position, now_us)
    now_us += data.draw(st.integers(0, 10**6))
    shares = departures.close(now_us)
    assert sum(shares) == now_us
    assert all(shares[position] == share for position, share in paid.items())


def test_who_stays_longer_pays_for_the_rest() -> None:
    departures = Departures(_batch([1, 1]))
    assert departures.leave(0, 100) == 50
    assert departures.close(1000) == [50, 950]


def test_the_last_work_stays_until_the_end() -> None:
    with pytest.raises(ValueError):
        Departures(_batch([1])).leave(0, 10)


def _batch(tokens: list[int]) -> Batch:
    works = [work(tokens=count) for count in tokens]
    return Batch(1, works, len(works), sum(tokens), "idle", 0.0, is_urgent=False)
