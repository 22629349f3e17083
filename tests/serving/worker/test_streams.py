"""Streamed answers of a worker: in order, to their end, side by side, and cancelled."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.wire import Kind
from serving.worker.engines.contract import Emission, EngineInput, EngineOutput, Tensor
from serving.worker.engines.echo import EchoEngine
from serving.worker.testing import EchoWorker
from tests.serving.worker.links import GatewayLink, linked, row
from tests.serving.worker.stream_engines import Blocked, Breaking, Watched


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
    async with linked(socket_path, EchoEngine(chunks=1000)) as link:
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


async def test_a_short_stream_ends_while_a_long_one_of_its_batch_goes_on(socket_path: str) -> None:
    engine = Blocked()
    async with linked(socket_path, engine) as link:
        first = link.infer(row(1))
        await asyncio.to_thread(engine.started.wait, 10)
        long, short = link.infer(row(100), stream_credit=1), link.infer(row(3), stream_credit=9)
        await link.round_trip()
        engine.open.set()
        ends = await link.ends(first, short)
        assert ends[short].stages.batch_requests == 2
        assert engine.ended == 1
        link.send(Kind.CANCEL, long)
        await link.ends(long)
        assert engine.ended == 2


async def test_a_whole_answer_does_not_wait_for_the_streams_of_its_batch(socket_path: str) -> None:
    engine = Blocked()
    async with linked(socket_path, engine) as link:
        first = link.infer(row(1))
        await asyncio.to_thread(engine.started.wait, 10)
        long, whole = link.infer(row(100), stream_credit=1), link.infer(row(3))
        await link.round_trip()
        engine.open.set()
        assert (await link.ends(first, whole))[whole].stages.batch_requests == 2
        assert engine.ended == 1
        link.send(Kind.CANCEL, long)
        assert (await link.ends(long))[long].code == "cancelled"


async def test_a_cancelled_stream_stops_frees_the_device_and_is_settled(socket_path: str) -> None:
    engine = Watched()
    async with linked(socket_path, engine) as link:
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
    async with linked(socket_path, engine) as link:
        async with GatewayLink(socket_path) as leaver:
            await leaver.hello()
            await leaver.chunk(leaver.infer(row(100), stream_credit=1))
        await link.answer(link.infer(row(1)))
        assert engine.ended == 2


async def test_a_streamed_request_must_fit_one_batch(link: GatewayLink) -> None:
    failure = await link.failure(link.infer(np.zeros((5, 1), np.float32), stream_credit=1, max_batch_size=4))
    assert (failure.code, failure.numbers) == ("invalid_request", {"rows": 5, "max_rows": 4})


async def test_a_chunk_that_is_too_large_ends_its_stream(
    socket_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serving.worker.requests.MAX_CHUNK_BYTES", 100)
    async with linked(socket_path, EchoEngine(chunks=2)) as link:
        assert (await link.failure(link.infer(row(100), stream_credit=9))).code == "engine_failed"
        asked = link.infer(row(10), stream_credit=9)
        for _ in range(2):
            await link.chunk(asked)
        await link.answer(asked)


async def test_a_stream_that_sent_a_chunk_never_runs_again(socket_path: str) -> None:
    async with linked(socket_path, Breaking()) as link:
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
    async with linked(socket_path, Breaking()) as link:
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


class _Open:
    """A gate that always is."""

    is_wanted = is_writable = True
    has_begun = False

    def emit(self, output: EngineOutput) -> None: ...

    def stood_still(self, waited_s: float, *, is_contended: bool) -> None: ...
