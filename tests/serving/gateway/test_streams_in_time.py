"""Streams and clocks: silence, deadlines, changed terms, a gateway that stops."""

from __future__ import annotations

import time

import pytest

from serving.gateway import deadlines, streaming
from tests.serving.gateway.harness import Harness, echo_body, until
from tests.serving.gateway.streams import (
    Events,
    Gated,
    serving,
    stream,
    values,
)


async def test_silence_is_broken_by_comments(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "KEEP_ALIVE_S", 0.01)
    engine = Gated()
    engine.emitted = 1
    async with serving(harness, engine):
        await harness.until_ready()
        async with stream(harness, echo_body(values(2))) as response:
            lines = response.aiter_lines()
            assert [await anext(lines) for _ in range(4)] == [": keep-alive", ""] * 2
            engine.go_on.release(2)
            assert [line async for line in lines if line.startswith("data: ")]


async def test_after_a_comment_a_refusal_is_an_event(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "KEEP_ALIVE_S", 0.01)
    engine = Gated()
    engine.emitted = 1
    async with serving(harness, engine):
        await harness.until_ready()
        async with stream(harness, echo_body(values(2))) as response:  # its head came with a comment
            dispatcher = harness.gateway.inference.dispatcher
            (pending,) = dispatcher.waiting()
            dispatcher.expire(pending.expires + deadlines.TICK_S)
            (last,) = await Events(response).rest()
        engine.go_on.release(10)
    assert (response.status_code, last["code"]) == (200, "deadline_unattainable")


async def test_the_deadline_is_about_the_first_part(harness: Harness) -> None:
    engine = Gated()
    async with serving(harness, engine):
        await harness.until_ready()
        async with stream(harness, echo_body(values(2))) as response:
            events = Events(response)
            await events.next()
            dispatcher = harness.gateway.inference.dispatcher
            (pending,) = dispatcher.waiting()
            dispatcher.expire(pending.deadline + 1)
            engine.go_on.release(1)
            assert len(await events.rest()) == 2


async def test_new_terms_do_not_end_a_stream_that_has_begun(harness: Harness) -> None:
    engine = Gated()
    async with serving(harness, engine):
        await harness.until_ready()
        async with stream(harness, echo_body(values(3))) as response:
            events = Events(response)
            await events.next()
            dispatcher = harness.gateway.inference.dispatcher
            (pending,) = dispatcher.waiting()
            dispatcher.amend(pending, pending.lane, time.monotonic() - 1.0)
            dispatcher.expire(time.monotonic() + 1.0)
            engine.go_on.release(2)
            assert len(await events.rest()) == 3


async def test_a_stream_may_not_go_on_for_ever(harness: Harness) -> None:
    engine = Gated()
    async with serving(harness, engine):
        await harness.until_ready()
        async with stream(harness, echo_body(values(5))) as response:
            events = Events(response)
            await events.next()
            dispatcher = harness.gateway.inference.dispatcher
            (pending,) = dispatcher.pool.replicas["rep_0"].in_flight.values()
            dispatcher.expire(pending.expires + deadlines.TICK_S)
            (last,) = await events.rest()
        engine.go_on.release(10)
    assert last["code"] == "deadline_unattainable"
    assert last["numbers"] == {"max_stream_s": deadlines.MAX_STREAM_S}


async def test_a_gateway_that_stops_lets_streams_finish(harness: Harness) -> None:
    engine = Gated()
    async with serving(harness, engine):
        await harness.until_ready()
        async with stream(harness, echo_body(values(3))) as response:
            events = Events(response)
            await events.next()
            harness.server.should_exit = True
            await until(lambda: harness.gateway.inference.is_draining)
            engine.go_on.release(2)
            assert len(await events.rest()) == 3


async def test_a_stream_that_outlives_the_grace_period_ends_with_an_error(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.server.config.timeout_graceful_shutdown = 0
    engine = Gated()
    async with serving(harness, engine):
        await harness.until_ready()
        async with stream(harness, echo_body(values(3))) as response:
            events = Events(response)
            await events.next()
            harness.server.should_exit = True
            (last,) = await events.rest()
        engine.go_on.release(10)
    assert last["code"] == "draining"
