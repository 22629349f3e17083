"""Tasks end, even those that once took a cancellation for something else."""

from __future__ import annotations

import asyncio

import pytest

from serving import ending
from serving.ending import end_tasks


async def test_a_task_that_swallows_a_cancellation_is_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "AGAIN_S", 0.01)
    swallowed = []

    async def go_on() -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if swallowed:
                    raise
                swallowed.append(1)

    task = asyncio.create_task(go_on())
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        await end_tasks([task])
    assert task.cancelled() and swallowed


async def test_a_task_that_failed_has_ended() -> None:
    async def fail() -> None:
        raise RuntimeError("no")

    task = asyncio.create_task(fail())
    await end_tasks([task])
    assert task.done()
