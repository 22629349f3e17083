"""Credit of streams: what a reader did not ask for is not made, and what one that stands still may cost others."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest

from serving.errors import ClientTooSlow
from serving.wire import Kind
from serving.worker import loop, streams
from serving.worker.engines.contract import EngineInput, EngineOutput, Finished, Run, Tensor
from serving.worker.testing import EchoWorker
from tests.serving.worker.links import GatewayLink, linked, row
from tests.serving.worker.stream_engines import Blocked, Careless, Watched


async def test_the_engine_makes_no_more_chunks_than_there_is_credit_for(socket_path: str) -> None:
    engine = Watched()
    async with linked(socket_path, engine) as link:
        asked = link.infer(row(100), stream_credit=3)
        for _ in range(3):
            await link.chunk(asked)
        await link.round_trip()
        assert engine.emitted == 3
        link.grant(asked, 2)
        for _ in range(2):
            await link.chunk(asked)
        await link.round_trip()
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
    async with linked(socket_path, engine) as link:
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
    async with linked(socket_path, engine) as link:
        first = link.infer(row(1))
        await asyncio.to_thread(engine.started.wait, 10)
        slow, brisk = link.infer(row(100), stream_credit=1), link.infer(row(3), stream_credit=9)
        await link.round_trip()
        engine.open.set()
        ends = await link.ends(first, slow, brisk)
    assert ends[slow].code == "client_too_slow"
    assert ends[brisk].stages.batch_requests == 2


async def test_a_reader_that_holds_up_the_device_of_others_is_given_up(
    socket_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "CONTENDED_STALL_S", 0.02)
    engine = Watched()
    async with linked(socket_path, engine) as link:
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
    async with linked(socket_path, Watched()) as link:
        slow = link.infer(row(5), stream_credit=1)
        await link.chunk(slow)
        for _ in range(20):
            await link.round_trip()
        link.grant(slow, 4)
        for _ in range(4):
            await link.chunk(slow)


async def test_chunks_of_an_engine_that_ignores_credit_are_kept_for_it(socket_path: str) -> None:
    async with linked(socket_path, Careless()) as link:
        asked = link.infer(np.full((1, 1), 100, np.float32), stream_credit=1)
        await link.chunk(asked)
        await link.answer(link.infer(np.zeros((1, 1), np.float32)))  # the batch itself has ended
        link.grant(asked, 1000)
        assert [(await link.chunk(asked))[0].index for _ in range(99)] == list(range(1, 100))
        await link.answer(asked)


async def test_a_stream_fails_alone_when_too_much_of_it_is_kept(socket_path: str) -> None:
    async with linked(socket_path, Careless()) as link:
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


@pytest.mark.parametrize("chunks", [0, -1])
async def test_a_credit_of_nothing_closes_the_link(link: GatewayLink, chunks: int) -> None:
    link.grant(1, chunks)
    assert (await link.next())[1] == 0


async def test_credit_for_a_request_that_is_over_is_ignored(link: GatewayLink) -> None:
    link.grant(4711, 5)
    await link.answer(link.infer(row(1)))
