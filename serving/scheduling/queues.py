"""Queues of work with cheap cancellation: entries are marked dead and skipped when they surface.

An entry is alive while its queue knows this very work under its id: a work that leaves a queue never comes
back to it, only a copy may (see `Scheduler.amend`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count

from serving.scheduling.work import Work

_order = count()
"""Ties are broken by arrival, in every queue."""


class EarliestFirst:
    """A heap by key (a time). Dead entries are swept out once they outnumber the living.

    `live` holds its works by id, for those who only look: cheaper than asking for the length.
    """

    __slots__ = ("_heap", "live")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Work]] = []
        self.live: dict[int, Work] = {}

    def __len__(self) -> int:
        return len(self.live)

    def __contains__(self, work_id: int) -> bool:
        return work_id in self.live

    def push(self, key: float, work: Work) -> None:
        heappush(self._heap, (key, next(_order), work))
        self.live[work.id] = work

    def peek(self) -> Work | None:
        heap, live = self._heap, self.live
        while heap:
            work = heap[0][2]
            if live.get(work.id) is work:
                return work
            heappop(heap)
        return None

    def take(self, offer: Callable[[Work], bool]) -> Work | None:
        """Pop the earliest if `offer` takes it: a queue by deadline is never overtaken from within."""
        heap, live = self._heap, self.live
        while heap:
            work = heap[0][2]
            work_id = work.id
            if live.get(work_id) is work:
                if not offer(work):
                    return None
                del live[work_id]
                heappop(heap)
                return work
            heappop(heap)
        return None

    def remove(self, work_id: int) -> None:
        self.live.pop(work_id, None)
        if len(self._heap) > 2 * len(self.live) + 64:
            self._heap = [entry for entry in self._heap if self.live.get(entry[2].id) is entry[2]]
            heapify(self._heap)


class FirstComeFirstServed:
    """A deque that lets small work behind the head fill the gap the head does not fit into; `live` as above."""

    __slots__ = ("_lookahead", "_queue", "live")

    def __init__(self, lookahead: int) -> None:
        self._queue: deque[Work] = deque()
        self.live: dict[int, Work] = {}
        self._lookahead = lookahead

    def __len__(self) -> int:
        return len(self.live)

    def push(self, work: Work) -> None:
        self._queue.append(work)
        self.live[work.id] = work

    def take(self, offer: Callable[[Work], bool]) -> Work | None:
        """Pop the first of the next few that `offer` takes."""
        queue, live = self._queue, self.live
        position = 0
        while position < self._lookahead and position < len(queue):
            work = queue[position]
            if live.get(work.id) is not work:
                del queue[position]
            elif offer(work):
                del queue[position]
                del live[work.id]
                return work
            else:
                position += 1
        return None

    def remove(self, work_id: int) -> None:
        self.live.pop(work_id, None)
        if len(self._queue) > 2 * len(self.live) + 64:
            self._queue = deque(work for work in self._queue if self.live.get(work.id) is work)
