"""Streamed answers of a worker: order, credit, cancellation, and what they may cost their neighbours."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.errors import ClientTooSlow
from serving.wire import Kind
from serving.worker import loop, streams
from serving.worker.engines.contract import (
    Emission,
    EngineInput,
    EngineOutput,
    Finished,
    Outcome,
    Run,
    Tensor,
)
from serving.worker.engines.echo import EchoEngine
from serving.worker.testing import EchoWorker
from tests.serving.worker.links import GatewayLink


class Watched(EchoEngine):
    """Counts what it emitted, and how many batches ended."""

    def __init__(self, chunks: int = 1000) -> None:
        super().__init__(chunks=chunks)
        self.emitted = 0
        self.ended = 0

    def run(self, inputs: Sequence[EngineInput]) -> Run:
        run = super().run(inputs)
        while True:
            try:
                step = next(run)
            except StopIteration as stop:
                self.ended += 1
                return stop.value  # type: ignore[no-any-return]
            self.emitted += isinstance(step, Emission)
            yield step


class Blocked(Watched):
    """Its first batch waits for `open`, so that what is sent meanwhile runs together."""

    def __init__(self) -> None:
        super().__init__()
        self.open = threading.Event()
        self.started = threading.Event()

    def run(self, inputs: Sequence[EngineInput]) -> Run:
        self.started.set()
        assert self.open.wait(10)
        return (yield from super().run(inputs))


class Careless(EchoEngine):
    """Emits `x` as many times as its first number says, whatever its readers can take."""

    def run(self, inputs: Sequence[EngineInput]) -> Run:
        for item in inputs:
            for _ in range(int(item.tensors["x"].array.flat[0])):
                yield Emission(item, EngineOutput({"y": item.tensors["x"]}))
        outcomes: list[Outcome] = [EngineOutput() for _ in inputs]
        return outcomes


class Breaking(EchoEngine):
    """Emits one chunk for every streamed input, then fails the batch if a number in it is negative."""

    def run(self, inputs: Sequence[EngineInput]) -> Run:
        for item in inputs:
            if item.stream is not None:
                yield Emission(item, EngineOutput({"y": item.tensors["x"]}))
        if any((item.tensors["x"].array < 0).any() for item in inputs):
            raise RuntimeError("a poisoned batch")
        return [EngineOutput({"y": item.tensors["x"]}) for item in inputs]


@pytest.fixture
def socket_path(tmp_path: Path) -> str:
    return str(tmp_path / "w.sock")


@pytest.fixture
async def link(socket_path: str) -> AsyncIterator[GatewayLink]:
    async with EchoWorker(f"unix:{socket_path}", EchoEngine(chunks=1000)), GatewayLink(socket_path) as link:
        await link.hello()
        yield link


def row(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.float32).reshape(1, count)


async def test_chunks_come_in_order_and_the_result_last(link: GatewayLink) -> None:
    asked = link.infer(row(50), stream_credit=100)
    parts = []
    for index in range(50):
        header, body = await link.chunk(asked)
        assert header.index == index
        assert header.tensors[0].name == "y"
        parts.append(np.frombuffer(body, np.float32))
    result, body = await link.answer(asked)
    assert (result.tensors, body) == ((), b"")
    np.testing.assert_array_equal(np.concatenate(parts), row(50)[0])


async def test_the_receipt_knows_when_the_first_chunk_left(link: GatewayLink) -> None:
    asked = link.infer(row(3), stream_credit=10)
    for _ in range(3):
        await link.chunk(asked)
    stages = (await link.answer(asked))[0].stages
    parts = (stages.queue_us, stages.batch_wait_us, stages.execute_us, stages.interrupted_us, stages.post_us)
    assert 0 < stages.first_chunk_us <= sum(parts) + 1


async def test_a_request_that_asks_for_no_stream_is_answered_as_before(link: GatewayLink) -> None:
    result, body = await link.answer(link.infer(row(50)))
    assert result.stages.first_chunk_us == 0
    assert body == row(50).tobytes()


async def test_an_engine_that_cannot_stream_answers_a_streamed_request_as_a_whole(socket_path: str) -> None:
    async with EchoWorker(f"unix:{socket_path}"), GatewayLink(socket_path) as link:
        await link.hello()
        _, body = await link.answer(link.infer(row(50), stream_credit=5))
        assert body == row(50).tobytes()


async def test_streams_of_one_batch_go_side_by_side(socket_path: str) -> None:
    async with EchoWorker(f"unix:{socket_path}", EchoEngine(chunks=1000)), GatewayLink(socket_path) as link:
        await link.hello()
        sent = {link.infer(row(20) + 100 * n, stream_credit=100): row(20)[0] + 100 * n for n in range(50)}
        got: dict[int, list[np.ndarray]] = {request_id: [] for request_id in sent}
        open_streams = set(sent)
        while open_streams:
            request_id, kind, _, body = await link.next()
            if kind == Kind.CHUNK:
                assert request_id in open_streams
                got[request_id].append(np.frombuffer(body, np.float32))
            else:
                assert kind == Kind.RESULT
                open_streams.remove(request_id)
        for request_id, values in sent.items():
            np.testing.assert_array_equal(np.concatenate(got[request_id]), values)


async def test_the_engine_makes_no_more_chunks_than_there_is_credit_for(socket_path: str) -> None:
    engine = Watched()
    async with EchoWorker(f"unix:{socket_path}", engine), GatewayLink(socket_path) as link:
        await link.hello()
        asked = link.infer(row(100), stream_credit=3)
        for _ in range(3):
            await link.chunk(asked)
        await _round_trip(link)
        assert engine.emitted == 3
        link.grant(asked, 2)
        for _ in range(2):
            await link.chunk(asked)
        await _round_trip(link)
        assert engine.emitted == 5
        link.grant(asked, 1000)
        for _ in range(95):
            await link.chunk(asked)
        await link.answer(asked)


async def test_a_stalled_stream_lets_urgent_work_run(
    socket_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "CONTENDED_STALL_S", 60.0)
    engine = Watched()
    async with EchoWorker(f"unix:{socket_path}", engine), GatewayLink(socket_path) as link:
        await link.hello()
        slow = link.infer(row(10), stream_credit=1)
        await link.chunk(slow)
        brisk = link.infer(row(10), stream_credit=10, sla_class="interactive")
        for _ in range(10):
            await link.chunk(brisk)
        await link.answer(brisk)
        link.grant(slow, 9)
        for _ in range(9):
            await link.chunk(slow)
        await link.answer(slow)


async def test_a_short_stream_ends_while_a_long_one_of_its_batch_goes_on(socket_path: str) -> None:
    engine = Blocked()
    async with EchoWorker(f"unix:{socket_path}", engine), GatewayLink(socket_path) as link:
        await link.hello()
        first = link.infer(row(1))
        await asyncio.to_thread(engine.started.wait, 10)
        long, short = link.infer(row(100), stream_credit=1), link.infer(row(3), stream_credit=9)
        await _round_trip(link)
        engine.open.set()
        ends = await _ends(link, first, short)
        assert ends[short].stages.batch_requests == 2
        assert engine.ended == 1
        link.send(Kind.CANCEL, long)
        await _ends(link, long)
        assert engine.ended == 2


async def test_a_whole_answer_does_not_wait_for_the_streams_of_its_batch(socket_path: str) -> None:
    engine = Blocked()
    async with EchoWorker(f"unix:{socket_path}", engine), GatewayLink(socket_path) as link:
        await link.hello()
        first = link.infer(row(1))
        await asyncio.to_thread(engine.started.wait, 10)
        long, whole = link.infer(row(100), stream_credit=1), link.infer(row(3))
        await _round_trip(link)
        engine.open.set()
        assert (await _ends(link, first, whole))[whole].stages.batch_requests == 2
        assert engine.ended == 1
        link.send(Kind.CANCEL, long)
        assert (await _ends(link, long))[long].code == "cancelled"


async def test_a_slow_reader_may_not_hold_up_the_rest_of_its_batch_for_long(
    socket_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "CONTENDED_STALL_S", 0.02)

    class Together(Blocked):
        """Ends all its streams together."""

        def run(self, inputs: Sequence[EngineInput]) -> Run:
            run = super().run(inputs)
            while True:
                try:
                    step = next(run)
                except StopIteration as stop:
                    return stop.value  # type: ignore[no-any-return]
                if not isinstance(step, Finished):
                    yield step

    engine = Together()
    async with EchoWorker(f"unix:{socket_path}", engine), GatewayLink(socket_path) as link:
        await link.hello()
        first = link.infer(row(1))
        await asyncio.to_thread(engine.started.wait, 10)
        slow, brisk = link.infer(row(100), stream_credit=1), link.infer(row(3), stream_credit=9)
        await _round_trip(link)
        engine.open.set()
        ends = await _ends(link, first, slow, brisk)
    assert ends[slow].code == "client_too_slow"
    assert ends[brisk].stages.batch_requests == 2


async def test_a_cancelled_stream_stops_frees_the_device_and_is_settled(socket_path: str) -> None:
    engine = Watched()
    async with EchoWorker(f"unix:{socket_path}", engine), GatewayLink(socket_path) as link:
        await link.hello()
        asked = link.infer(row(100), stream_credit=2)
        for _ in range(2):
            await link.chunk(asked)
        link.send(Kind.CANCEL, asked)
        failure = await link.failure(asked)
        assert failure.code == "cancelled"
        assert failure.stages is not None
        assert failure.stages.first_chunk_us > 0
        assert (engine.emitted, engine.ended) == (2, 1)
        await link.answer(link.infer(row(1)))


async def test_a_lost_link_stops_its_streams(socket_path: str) -> None:
    engine = Watched()
    async with EchoWorker(f"unix:{socket_path}", engine), GatewayLink(socket_path) as link:
        await link.hello()
        async with GatewayLink(socket_path) as leaver:
            await leaver.hello()
            await leaver.chunk(leaver.infer(row(100), stream_credit=1))
        await link.answer(link.infer(row(1)))
        assert engine.ended == 2


async def test_a_reader_that_holds_up_the_device_of_others_is_given_up(
    socket_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "CONTENDED_STALL_S", 0.02)
    engine = Watched()
    async with EchoWorker(f"unix:{socket_path}", engine), GatewayLink(socket_path) as link:
        await link.hello()
        slow = link.infer(row(100), stream_credit=1)
        await link.chunk(slow)
        waiting = link.infer(row(1))
        failure = await link.failure(slow)
        assert failure.code == "client_too_slow"
        assert failure.stages is not None
        assert failure.stages.interrupted_us > 0
        await link.answer(waiting)


async def test_a_steady_reader_is_never_given_up_however_long_others_wait() -> None:
    """Its gateway may be what is slow: it takes a chunk of four bytes every tenth of a second."""
    stream = streams.Stream(None, 4000, streams.Outbox(asyncio.get_running_loop(), lambda *_: None))
    chunk = EngineOutput({"y": Tensor("FP32", np.zeros((1, 1), np.float32))})
    for _ in range(1000):
        stream.stood_still(0.1, is_contended=True)
        stream.emit(chunk)
        assert stream.is_wanted


async def test_a_dripping_reader_is_given_up() -> None:
    stream = streams.Stream(None, 4000, streams.Outbox(asyncio.get_running_loop(), lambda *_: None))
    chunk = EngineOutput({"y": Tensor("FP32", np.zeros((1, 1), np.float32))})
    for _ in range(10):
        stream.stood_still(0.5, is_contended=True)
        stream.emit(chunk)
    assert isinstance(stream.ended, ClientTooSlow)


async def test_a_reader_may_take_its_time_while_nobody_else_waits(
    socket_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "CONTENDED_STALL_S", 1e-9)
    monkeypatch.setattr(loop, "STALL_LOOK_S", 0.001)
    async with EchoWorker(f"unix:{socket_path}", Watched()), GatewayLink(socket_path) as link:
        await link.hello()
        slow = link.infer(row(5), stream_credit=1)
        await link.chunk(slow)
        for _ in range(20):
            await _round_trip(link)
        link.grant(slow, 4)
        for _ in range(4):
            await link.chunk(slow)


async def test_chunks_of_an_engine_that_ignores_credit_are_kept_for_it(socket_path: str) -> None:
    async with EchoWorker(f"unix:{socket_path}", Careless()), GatewayLink(socket_path) as link:
        await link.hello()
        asked = link.infer(np.full((1, 1), 100, np.float32), stream_credit=1)
        await link.chunk(asked)
        await link.answer(link.infer(np.zeros((1, 1), np.float32)))  # the batch itself has ended
        link.grant(asked, 1000)
        assert [(await link.chunk(asked))[0].index for _ in range(99)] == list(range(1, 100))
        await link.answer(asked)


async def test_a_stream_fails_alone_when_too_much_of_it_is_kept(socket_path: str) -> None:
    async with EchoWorker(f"unix:{socket_path}", Careless()), GatewayLink(socket_path) as link:
        await link.hello()
        many = streams.MAX_KEPT_CHUNKS + 10
        slow = link.infer(np.full((1, 1), many, np.float32), stream_credit=1)
        brisk = link.infer(np.full((1, 1), many, np.float32), stream_credit=many)
        counts = {slow: 0, brisk: 0}
        ends = {}
        while len(ends) < 2:
            request_id, kind, header, _ = await link.next()
            if kind == Kind.CHUNK:
                counts[request_id] += 1
            else:
                ends[request_id] = (kind, header)
        assert counts[slow] <= 1
        assert counts[brisk] == many
        assert ends[slow][1].code == "client_too_slow"
        assert ends[brisk][0] == Kind.RESULT


async def test_draining_waits_for_a_reader_of_kept_chunks(socket_path: str) -> None:
    async with EchoWorker(f"unix:{socket_path}", Careless()) as worker, GatewayLink(socket_path) as link:
        await link.hello()
        asked = link.infer(np.full((1, 1), 3, np.float32), stream_credit=1)
        await link.chunk(asked)
        worker.intake.drain()
        await link.hello()
        link.grant(asked, 5)
        await worker.drain()
        for _ in range(2):
            await link.chunk(asked)
        await link.answer(asked)


async def test_a_streamed_request_must_fit_one_batch(link: GatewayLink) -> None:
    failure = await link.failure(link.infer(np.zeros((5, 1), np.float32), stream_credit=1, max_batch_size=4))
    assert (failure.code, failure.numbers) == ("invalid_request", {"rows": 5, "max_rows": 4})


async def test_a_chunk_that_is_too_large_ends_its_stream(
    socket_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serving.worker.requests.MAX_CHUNK_BYTES", 100)
    async with EchoWorker(f"unix:{socket_path}", EchoEngine(chunks=2)), GatewayLink(socket_path) as link:
        await link.hello()
        assert (await link.failure(link.infer(row(100), stream_credit=9))).code == "engine_failed"
        asked = link.infer(row(10), stream_credit=9)
        for _ in range(2):
            await link.chunk(asked)
        await link.answer(asked)


@pytest.mark.parametrize("chunks", [0, -1])
async def test_a_credit_of_nothing_closes_the_link(link: GatewayLink, chunks: int) -> None:
    link.grant(1, chunks)
    assert (await link.next())[1] == 0


async def test_credit_for_a_request_that_is_over_is_ignored(link: GatewayLink) -> None:
    link.grant(4711, 5)
    await link.answer(link.infer(row(1)))


async def test_a_stream_that_sent_a_chunk_never_runs_again(socket_path: str) -> None:
    async with EchoWorker(f"unix:{socket_path}", Breaking()), GatewayLink(socket_path) as link:
        await link.hello()
        sent = [link.infer(np.full((1, 1), value, np.float32), stream_credit=9) for value in (-1, 1, 2)]
        chunks = dict.fromkeys(sent, 0)
        ends = {}
        while len(ends) < 3:
            request_id, kind, header, _ = await link.next()
            if kind == Kind.CHUNK:
                chunks[request_id] += 1
            else:
                ends[request_id] = header
        assert set(chunks.values()) == {1}
        assert ends[sent[0]].code == "engine_failed"


async def test_neighbours_of_a_broken_stream_are_answered(socket_path: str) -> None:
    async with EchoWorker(f"unix:{socket_path}", Breaking()), GatewayLink(socket_path) as link:
        await link.hello()
        bad = link.infer(np.full((1, 1), -1, np.float32), stream_credit=9)
        good = [link.infer(np.full((1, 1), value, np.float32)) for value in range(5)]
        ends = {}
        while len(ends) < 6:
            request_id, kind, header, _ = await link.next()
            if kind != Kind.CHUNK:
                ends[request_id] = kind
        assert ends[bad] == Kind.ERROR
        assert all(ends[request_id] == Kind.RESULT for request_id in good)


@given(st.binary(max_size=200), st.integers(2, 20))
def test_the_parts_of_an_echoed_text_are_the_text(text: bytes, chunks: int) -> None:
    engine = EchoEngine(chunks=chunks, is_text=True)
    item = EngineInput(1, {"text_input": Tensor("BYTES", np.array([text], object))}, stream=_Open())
    steps = [step for step in engine.run([item]) if isinstance(step, Emission)]
    parts = [step.output.tensors["text_output"].array.item(0) for step in steps]
    assert b"".join(parts) == text
    assert len(parts) <= chunks


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
        async with EchoWorker(f"unix:{path}", EchoEngine(chunks=1000)), GatewayLink(path) as link:
            await link.hello()
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


class _Open:
    """A gate that always is."""

    is_wanted = is_writable = True
    has_begun = False

    def emit(self, output: EngineOutput) -> None: ...

    def stood_still(self, waited_s: float, *, is_contended: bool) -> None: ...


async def _ends(link: GatewayLink, *request_ids: int) -> dict[int, Any]:
    """The results and failures of these requests; chunks on the way are passed over."""
    ends: dict[int, Any] = {}
    while ends.keys() < set(request_ids):
        request_id, kind, header, _ = await link.next()
        if kind in (Kind.RESULT, Kind.ERROR):
            ends[request_id] = header
    return ends


async def _round_trip(link: GatewayLink) -> None:
    """Everything sent before this was read by the worker."""
    link.send(Kind.PING, 1 << 40)
    assert (await link.next())[1] == Kind.PONG
