"""A profile that changes also changes for the requests that wait already.

Each request in flight whose lane has other terms now is told to its worker (AMEND); its own tighter wishes
stay. What the device has begun is not touched: the worker ignores terms for it.
"""

from __future__ import annotations

import asyncio

from serving.gateway.dispatch import Dispatcher
from serving.gateway.pending import Pending
from serving.gateway.routing import Lane, Router

AT_ONCE = 256
"""Requests amended before others get a turn of the event loop: about a millisecond."""
_SAME_S = 1e-6


class Amendments:
    """`start` after the configuration changed, on the event loop."""

    def __init__(self, dispatcher: Dispatcher, router: Router) -> None:
        self._dispatcher = dispatcher
        self._router = router
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, or begin anew when the one before is not through yet."""
        self.stop()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        renewed: dict[Lane, Lane] = {}
        for count, pending in enumerate(self._dispatcher.waiting(), start=1):
            lane = renewed.get(pending.lane)
            if lane is None:
                lane = renewed[pending.lane] = self._router.renewed(pending.lane)
            if pending.is_open and lane.profile != pending.lane.profile:
                self._dispatcher.amend(pending, lane, _deadline(pending, lane))
            if count % AT_ONCE == 0:
                await asyncio.sleep(0)


def _deadline(pending: Pending, lane: Lane) -> float:
    """The new profile's, from the request's start, or the request's own where that is tighter."""
    if pending.own_deadline is None:
        profiles = pending.arrived + pending.lane.deadline_s
        pending.own_deadline = pending.deadline if pending.deadline < profiles - _SAME_S else float("inf")
    return min(pending.arrived + lane.deadline_s, pending.own_deadline)
