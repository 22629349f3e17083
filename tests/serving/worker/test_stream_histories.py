"""Whatever a gateway does, its streams keep their promises."""

from __future__ import annotations

import asyncio
import tempfile
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from serving.wire import Kind
from serving.worker.engines.echo import EchoEngine
from tests.serving.worker.links import GatewayLink, linked, row

_ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("open"), st.integers(1, 12), st.integers(0, 8)),
        st.tuples(st.just("grant"), st.integers(0, 9), st.integers(1, 8)),
        st.tuples(st.just("cancel"), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("wait"), st.just(0), st.just(0)),
    ),
    max_size=30,
)


@settings(max_examples=60, deadline=None)
@given(_ACTIONS)
def test_whatever_a_gateway_does_streams_stay_within_credit_in_order_and_end_once(
    actions: list[tuple[str, int, int]],
) -> None:
    asyncio.run(_any_history(actions))


async def _any_history(actions: list[tuple[str, int, int]]) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        path = f"{directory}/w"
        async with linked(path, EchoEngine(chunks=1000)) as link:
            history = _History(link)
            for action, one, other in actions:
                if action == "open":
                    history.open(one, other)
                elif action == "grant":
                    history.grant(one, other)
                elif action == "cancel":
                    history.cancel(one)
                else:
                    await _round_trip_past(history)
            await history.finish()


class _History:
    """What was asked, and what may come."""

    def __init__(self, link: GatewayLink) -> None:
        self.link = link
        self.width: dict[int, int] = {}
        self.granted: dict[int, int] = {}
        self.came: dict[int, int] = {}
        self.ended: set[int] = set()
        self.cancelled: set[int] = set()

    def open(self, width: int, credit: int) -> None:
        request_id = self.link.infer(row(width), stream_credit=credit)
        self.width[request_id], self.granted[request_id], self.came[request_id] = width, credit, 0

    def grant(self, which: int, chunks: int) -> None:
        if (request_id := self._pick(which)) is not None:
            self.granted[request_id] += chunks if self.granted[request_id] else 0
            self.link.grant(request_id, chunks)

    def cancel(self, which: int) -> None:
        if (request_id := self._pick(which)) is not None:
            self.cancelled.add(request_id)
            self.link.send(Kind.CANCEL, request_id)

    def take(self, request_id: int, kind: int, header: Any) -> None:
        assert request_id not in self.ended
        if kind == Kind.CHUNK:
            assert header.index == self.came[request_id] < self.granted[request_id]
            self.came[request_id] += 1
            return
        self.ended.add(request_id)
        if kind == Kind.RESULT:
            assert self.came[request_id] == (self.width[request_id] if self.granted[request_id] else 0)
        else:
            assert header.code == "cancelled" and request_id in self.cancelled

    async def finish(self) -> None:
        for request_id in self.width.keys() - self.ended:
            self.grant_all(request_id)
        while self.width.keys() > self.ended:
            request_id, kind, header, _ = await self.link.next()
            self.take(request_id, kind, header)

    def grant_all(self, request_id: int) -> None:
        if self.granted[request_id]:
            self.granted[request_id] += 100
            self.link.grant(request_id, 100)

    def _pick(self, which: int) -> int | None:
        ids = sorted(self.width)
        return ids[which % len(ids)] if ids else None


async def _round_trip_past(history: _History) -> None:
    history.link.send(Kind.PING, 1 << 40)
    while True:
        request_id, kind, header, _ = await history.link.next()
        if kind == Kind.PONG:
            return
        history.take(request_id, kind, header)
