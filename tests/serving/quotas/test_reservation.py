"""What a request holds of its budgets over several tries, some of which are only known when it is over."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from serving.quotas.holding import Holding, Reservation
from serving.quotas.limits import Amounts
from tests.serving.quotas import rows


def device(amount: int) -> Amounts:
    return Amounts(0, 0, amount, 0)


def a_reservation(amount: int) -> tuple[Holding, Reservation]:
    holding = Holding(rows.limit("device_us", "day", 1000))
    holding.receive(amount)
    return holding, Reservation(((holding, amount),))


def test_what_a_cancelled_try_may_use_stays_reserved_until_it_is_known() -> None:
    holding, reservation = a_reservation(50)
    reservation.keep()
    reservation.release()
    assert (holding.promised, holding.spent) == (50, 0)
    reservation.add(device(30))
    assert (holding.promised, holding.spent) == (20, 30)
    reservation.drop()
    assert (holding.promised, holding.spent) == (0, 30)


def test_a_place_is_free_when_the_request_is_over_whatever_is_still_owed() -> None:
    inside = Holding(rows.limit("concurrency", "", 3))
    inside.receive(1)
    reservation = Reservation(((inside, 1),))
    reservation.keep()
    reservation.release()
    assert inside.promised == 0
    reservation.drop()
    assert inside.promised == 0


def test_a_dearer_try_asks_for_what_is_missing_beside_what_is_left() -> None:
    holding, reservation = a_reservation(50)
    reservation.add(device(30))
    assert reservation.missing(device(60)) == [(holding, 40)]
    holding.receive(40)
    reservation.absorb(Reservation(((holding, 40),)))
    assert reservation.missing(device(60)) == []
    reservation.settle(device(55))
    reservation.release()
    assert (holding.promised, holding.spent) == (0, 85)


TRIES = st.lists(st.tuples(st.integers(0, 40), st.booleans(), st.booleans()), max_size=6)


@given(tries=TRIES, answer=st.one_of(st.none(), st.integers(0, 60)), order=st.randoms(use_true_random=False))
def test_every_unit_used_is_counted_once_and_nothing_stays_reserved(
    tries: list[tuple[int, bool, bool]], answer: int | None, order: object
) -> None:
    """Tries that failed, and tries given up that are heard of before or after the request is over."""
    holding, reservation = a_reservation(100)
    late = []
    for used, is_given_up, is_after in tries:
        if not is_given_up:
            reservation.add(device(used))
            continue
        reservation.keep()
        if is_after:
            late.append(used)
        else:
            reservation.add(device(used))
            reservation.drop()
    if answer is not None:
        reservation.settle(device(answer))
    reservation.release()
    order.shuffle(late)  # type: ignore[attr-defined]
    for used in late:
        assert holding.promised >= 0
        reservation.add(device(used))
        reservation.drop()
    assert holding.spent == sum(used for used, _, _ in tries) + (answer or 0)
    assert holding.promised == 0
