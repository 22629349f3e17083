"""Load shedding by class, lowest first, without flapping and without one tenant's doing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from serving.gateway.shedding import (
    CLASSES,
    LEAST_S,
    NONE,
    RANK,
    Headroom,
    VersionShedding,
    Waiting,
    pressure,
)

MOST = 1000
BATCH, STANDARD, INTERACTIVE = range(3)


def waiting(rank: int, tenants: str, each_s: float, deadline_s: float = 1.0) -> list[Waiting]:
    return [Waiting(rank, tenant, round(each_s * 1e6), deadline_s) for tenant in tenants]


def test_the_gateway_fills_up_lowest_class_first() -> None:
    assert Headroom(MOST).limits == (800, 900, 1000)


def test_a_class_that_was_shed_waits_for_relief() -> None:
    room = Headroom(MOST)
    room.update(800)
    assert room.limits == (700, 900, 1000)
    room.update(701)
    assert room.limits == (700, 900, 1000)
    room.update(699)
    assert room.limits == (800, 900, 1000)


@given(st.lists(st.integers(0, MOST), max_size=100))
def test_no_class_finds_room_while_a_higher_one_does_not(history: list[int]) -> None:
    room = Headroom(MOST)
    for in_flight in history:
        room.update(in_flight)
        admitted = [in_flight < limit for limit in room.limits]
        assert admitted == sorted(admitted)
        assert room.limits[INTERACTIVE] == MOST


def test_work_that_misses_interactive_deadlines_sheds_what_is_below() -> None:
    found = pressure(waiting(INTERACTIVE, "ab", 3.0) + waiting(BATCH, "c", 99.0), replicas=2)
    assert (found.rank, found.work_s, found.deadline_s) == (RANK["interactive"], 1.5, 1.0)


def test_standard_work_that_piles_up_sheds_batch_only() -> None:
    found = pressure(waiting(STANDARD, "ab", 3.0) + waiting(INTERACTIVE, "ab", 0.1), replicas=1)
    assert found.rank == RANK["standard"]


def test_batch_work_alone_sheds_nothing() -> None:
    assert pressure(waiting(BATCH, "abc", 1000.0), replicas=1) == NONE


def test_one_tenants_flood_sheds_nobody_else() -> None:
    flood = waiting(INTERACTIVE, "a" * 500, 1.0) + waiting(INTERACTIVE, "bc", 0.2)
    assert pressure(flood, replicas=1) == NONE


def test_shedding_lasts_a_while_and_ends_with_relief() -> None:
    shedding = VersionShedding()
    shedding.update(waiting(INTERACTIVE, "ab", 2.0), 1, now=0.0)
    assert shedding.rank == INTERACTIVE
    shedding.update([], 1, now=LEAST_S / 2)
    assert shedding.rank == INTERACTIVE
    shedding.update(waiting(INTERACTIVE, "ab", 0.8), 1, now=LEAST_S)
    assert shedding.rank == INTERACTIVE, "below the bar that started it, but not by enough"
    shedding.update(waiting(INTERACTIVE, "ab", 0.4), 1, now=LEAST_S)
    assert shedding.rank == 0


some_waiting = st.lists(
    st.builds(
        Waiting,
        rank=st.integers(0, 2),
        tenant_id=st.sampled_from("abcd"),
        predicted_us=st.integers(1, 5_000_000),
        deadline_s=st.floats(0.01, 10.0),
    ),
    max_size=40,
)


@given(st.lists(st.tuples(some_waiting, st.floats(0.0, 3.0)), max_size=30), st.integers(1, 4))
def test_interactive_work_is_never_shed_by_pressure(
    history: list[tuple[list[Waiting], float]], replicas: int
) -> None:
    shedding, now, shed_at = VersionShedding(), 0.0, 0.0
    for load, pause_s in history:
        now += pause_s
        before = shedding.rank
        shedding.update(load, replicas, now)
        admitted = [rank >= shedding.rank for rank in range(len(CLASSES))]
        assert admitted == sorted(admitted) and admitted[INTERACTIVE]
        if shedding.rank > before:
            shed_at = now
        assert shedding.rank >= before or now - shed_at >= LEAST_S


@given(some_waiting, some_waiting)
def test_no_flood_of_one_tenant_sheds_others_that_fit(load: list[Waiting], flood: list[Waiting]) -> None:
    """Whatever it sends, with whatever deadlines: others whose work fits their deadlines stay."""
    room_s = min((one.deadline_s for one in load), default=1.0)
    others = [one._replace(predicted_us=int(room_s * 1e6 / len(load))) for one in load]
    assert pressure([*others, *(one._replace(tenant_id="flood") for one in flood)], 1) == NONE or not load
