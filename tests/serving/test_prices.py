"""Which price binds, from when, and that sums of money are exact however they are cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from serving.contract import PriceEntry
from serving.prices import FREE, PARTS_PER_MICRO, PriceBook, PriceTable, Rates

HOUR = 3_600.0


def price(per_hour: int = 0, *, since: float = 0.0, **fields: object) -> PriceEntry:
    values = {"id": f"prc_{since}", "effective_from": since, "micro_per_device_hour": per_hour} | fields
    return PriceEntry(**values)  # type: ignore[arg-type]


def test_without_a_price_nothing_costs_anything() -> None:
    assert PriceBook().line("m", "cpu").at(0.0) == FREE
    assert PriceBook([price(5, since=100.0)]).line("m", "cpu").at(99.9) == FREE


def test_a_price_holds_from_its_date_until_the_next_one() -> None:
    line = PriceBook([price(3, since=300.0), price(1, since=100.0), price(2, since=200.0)]).line("m", "cpu")
    found = [line.at(now).micro_per_device_hour for now in (99.0, 100.0, 199.999, 200.0, 300.0, 1e12, 150.0)]
    assert found == [0, 1, 1, 2, 3, 3, 1]


def test_the_narrowest_scope_with_a_price_wins() -> None:
    book = PriceBook(
        [
            price(1),
            price(2, device_class="gpu"),
            price(3, model="m"),
            price(4, model="m", device_class="gpu"),
        ]
    )
    found = {
        (model, kind): book.line(model, kind).at(0.0).micro_per_device_hour
        for model in ("m", "n")
        for kind in ("gpu", "cpu", "")
    }
    expected = {
        ("m", "gpu"): 4,
        ("m", "cpu"): 3,
        ("m", ""): 3,
        ("n", "gpu"): 2,
        ("n", "cpu"): 1,
        ("n", ""): 1,
    }
    assert found == expected


def test_a_scope_whose_price_ended_is_charged_like_the_next_wider_one() -> None:
    book = PriceBook([price(1), price(9, since=100.0, model="m"), price(since=200.0, model="m", is_end=True)])
    line = book.line("m", "cpu")
    assert [line.at(now).micro_per_device_hour for now in (50.0, 150.0, 250.0)] == [1, 9, 1]


def test_a_version_s_own_price_replaces_the_device_hour_and_nothing_else() -> None:
    line = PriceBook([price(1, micro_per_million_tokens=7)]).line("m", "cpu", 5)
    assert line.at(0.0) == Rates(5, 7, 0)
    assert PriceBook().line("m", "cpu", 5).at(0.0) == Rates(5, 0, 0)


def test_tokens_and_requests_are_charged_when_they_are_answered() -> None:
    rates = Rates(
        micro_per_device_hour=3_600_000, micro_per_million_tokens=2_000_000, micro_per_thousand_requests=5_000
    )
    # A millisecond at 3.60 an hour is one micro-unit; a token two, a request five.
    assert rates.answer_parts(1_000, 10) == (1 + 20 + 5) * PARTS_PER_MICRO
    assert rates.device_parts(1_000) == PARTS_PER_MICRO


def test_a_table_follows_prices_classes_and_versions() -> None:
    table = PriceTable()
    assert table.rates("rep_a", "m", 0, 10.0) == FREE
    table.set_prices([price(1), price(2, device_class="gpu"), price(8, since=100.0, device_class="gpu")])
    assert table.rates("rep_a", "m", 0, 10.0).micro_per_device_hour == 1
    table.set_classes({"rep_a": "gpu"})
    assert table.rates("rep_a", "m", 0, 10.0).micro_per_device_hour == 2
    assert table.rates("rep_a", "m", 0, 100.0).micro_per_device_hour == 8
    table.set_classes({})
    assert table.rates("rep_a", "m", 0, 100.0).micro_per_device_hour == 8, "it may still be answering"
    table.forget_lines()
    assert table.rates("rep_a", "m", 4, 100.0).micro_per_device_hour == 4


@given(
    since=st.lists(st.integers(0, 20), max_size=8),
    moments=st.lists(st.floats(-1, 25, allow_nan=False), max_size=20),
)
def test_whatever_the_order_of_asking_the_newest_price_that_began_binds(
    since: list[int], moments: list[float]
) -> None:
    line = PriceBook([price(begins + 1, since=float(begins)) for begins in since]).line("m", "cpu")
    for now in moments:
        begun = [begins for begins in since if begins <= now]
        assert line.at(now).micro_per_device_hour == (max(begun) + 1 if begun else 0)


def test_a_request_reserves_by_the_highest_price_that_binds_before_it_ends() -> None:
    table = PriceTable()
    table.set_prices([price(2), price(9, since=100.0), price(5, since=200.0)])
    assert table.highest("m", 0, 50.0, 99.0).micro_per_device_hour == 2
    assert table.highest("m", 0, 50.0, 100.0).micro_per_device_hour == 9
    assert table.highest("m", 0, 50.0, 500.0).micro_per_device_hour == 9
    assert table.highest("m", 0, 200.0, 500.0).micro_per_device_hour == 5


def test_a_request_that_began_before_its_version_s_price_changed_leaves_the_new_one_alone() -> None:
    table = PriceTable()
    table.set_prices([price(2)])
    assert table.rates("rep_a", "m", 4, 10.0).micro_per_device_hour == 4
    table.forget_lines()
    assert table.rates("rep_a", "m", 4, 10.0).micro_per_device_hour == 4
    assert table.rates("rep_a", "m", 6, 10.0).micro_per_device_hour == 6
    assert table.rates("rep_a", "m", 4, 10.0).micro_per_device_hour == 4
