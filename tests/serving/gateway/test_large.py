"""Large bodies take turns, and no tenant takes another's."""

from __future__ import annotations

import asyncio
import time

import pytest

from serving.errors import QueueFull
from serving.gateway.large import Room, Turns


def test_a_tenant_alone_may_hold_half_and_the_next_one_half_of_the_rest() -> None:
    room = Room(1000)
    with room.hold("a", 500):
        with pytest.raises(QueueFull):
            room.hold("a", 1).__enter__()
        with room.hold("b", 250), pytest.raises(QueueFull):
            room.hold("b", 1).__enter__()
    assert room.held_bytes == 0
    assert not room._of_tenant


async def test_turns_alternate_between_tenants() -> None:
    turns, order = Turns(), []
    many = [turns.take("a", lambda: order.append("a")) for _ in range(10)]
    await asyncio.gather(*many, turns.take("b", lambda: order.append("b")))
    assert order.index("b") <= 2
    assert not turns._of_tenant


async def test_what_is_not_large_runs_between_turns() -> None:
    turns, seen = Turns(), []

    async def small() -> None:
        while len(seen) < 5:
            seen.append(time.monotonic())
            await asyncio.sleep(0.001)

    task = asyncio.create_task(small())
    await asyncio.gather(*(turns.take(str(index), lambda: time.sleep(0.02)) for index in range(6)))
    assert len(seen) == 5
    await task


async def test_a_piece_that_fails_or_is_cancelled_gives_its_turn_back() -> None:
    turns = Turns()
    with pytest.raises(ZeroDivisionError):
        await turns.take("a", lambda: 1 // 0)
    waiting = asyncio.create_task(turns.take("a", lambda: time.sleep(0.05)))
    await asyncio.sleep(0)
    waiting.cancel()
    assert await turns.take("a", lambda: 1) == 1
    await asyncio.gather(waiting, return_exceptions=True)
    assert not turns._of_tenant
