"""The wheel: everything comes out, never before its time, at most a tick late."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from serving.gateway.deadlines import TICK_S, Wheel


@given(
    delays=st.lists(st.floats(-1, 30), max_size=50),
    steps=st.lists(st.floats(0, 5), max_size=50),
)
def test_items_come_out_once_and_in_time(delays: list[float], steps: list[float]) -> None:
    now = 100.0
    wheel: Wheel[int] = Wheel(now)
    due = {index: now + delay for index, delay in enumerate(delays)}
    for index, at in due.items():
        wheel.add(index, at)
    seen: list[int] = []
    for step in [*steps, 1000.0]:
        now += step
        for index in wheel.due(now):
            assert due[index] <= now
            seen.append(index)
        assert all(at > now - 2 * TICK_S for index, at in due.items() if index not in seen)
    assert sorted(seen) == sorted(due)


def test_what_was_removed_does_not_come_out() -> None:
    wheel: Wheel[str] = Wheel(0.0)
    slot = wheel.add("a", 1.0)
    wheel.add("b", 1.0)
    wheel.remove("a", slot)
    assert wheel.due(2.0) == ["b"]
    wheel.remove("b", slot)
