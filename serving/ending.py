"""How tasks that run for ever are ended."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

AGAIN_S = 1.0


async def end_tasks(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel, and wait until all have ended. How they ended is nobody's concern any more.

    A library that takes a cancellation for its own time-out swallows it: who goes on is told again.
    """
    ended = tuple(tasks)
    running = set(ended)
    while running:
        for task in running:
            task.cancel()
        _, running = await asyncio.wait(running, timeout=AGAIN_S)
    await asyncio.gather(*ended, return_exceptions=True)
