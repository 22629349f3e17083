"""An inference request over ASGI: one task that may wait, for its body, its turn, its tokens, its reader."""

from __future__ import annotations

import asyncio
import functools

from serving.errors import DataPlaneError, InvalidRequest
from serving.gateway import streaming
from serving.gateway.exchange import Exchange
from serving.gateway.idempotency import IDEMPOTENCY_KEY
from serving.gateway.inference import LONG_ANSWER_BYTES, Call, Inference, Parse, Target, check_media
from serving.gateway.inputs import Inputs
from serving.gateway.once import OnceOnly
from serving.gateway.pending import Answer, Payload, Pending
from serving.gateway.routing import Lane
from serving.gateway.snapshot import Grant
from serving.gateway.visit import SMALL_BODY_BYTES


class AsgiInference:
    def __init__(self, inference: Inference, once: OnceOnly) -> None:
        self._steps = inference
        self._once = once

    async def serve(
        self, exchange: Exchange, parse: Parse, endpoint: str, target: Target | None = None
    ) -> None:
        """Answer the request. Raises `DataPlaneError` for a refusal, after counting it."""
        self._steps.count_in()
        try:
            exchange.endpoint = endpoint
            exchange.check_headers()
            grant = self._steps.authenticate(exchange, endpoint)
            if target is not None:  # refused before its body is read, and counted under its model
                self._steps.route(exchange, grant, *target)
            check_media(exchange.headers)
            size_bytes = exchange.large_body_bytes(self._steps.max_body_bytes)
            if not size_bytes:
                await self._parsed(exchange, grant, parse)
            else:
                with self._steps.room.hold(grant.tenant.id, size_bytes):
                    await self._parsed(exchange, grant, parse)
        except DataPlaneError as error:
            if not exchange.is_replayed:
                self._steps.count_refusal(exchange, error)
            raise
        finally:
            if exchange.is_replayed:
                self._steps.count_replay(exchange)

    async def _parsed(self, exchange: Exchange, grant: Grant, parse: Parse) -> None:
        body = await exchange.read_body(self._steps.max_body_bytes)
        if len(body) <= SMALL_BODY_BYTES:
            call, name = parse(body)
        else:
            call, name = await self._steps.turns.take(grant.tenant.id, lambda: parse(body))
        lane = exchange.lane or self._steps.route(exchange, grant, name, None)
        lane = self._steps.lower(exchange, lane, call)
        self._steps.enter(exchange, grant, lane)
        try:
            key = exchange.headers.get(IDEMPOTENCY_KEY)
            if key is not None and call.events is not None:
                raise InvalidRequest("a streamed answer is not kept: send it without Idempotency-Key")
            if key is None:
                await self._entered(exchange, grant, lane, call)
            else:
                run = functools.partial(self._entered, exchange, grant, lane, call)
                await self._once.serve(exchange, grant.tenant.id, key, body, run)
        finally:
            self._steps.leave(exchange)

    async def _entered(self, exchange: Exchange, grant: Grant, lane: Lane, call: Call) -> None:
        payload = await self._steps.payload(lane, await self._inputs(exchange, lane, call))
        await self._steps.quotas.reserve(exchange, grant, lane, payload)
        if call.events is not None:
            await streaming.respond(self._steps, exchange, grant, lane, call, payload)
            return
        outcome: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._steps.send(exchange, grant, lane, call, payload, lambda known: _resolve(outcome, known))
        answer = await self._outcome(exchange, outcome)
        pending, payload = _answered(exchange)
        try:
            head, body = await _encoded(call, pending.lane, answer, payload)
        except DataPlaneError:
            self._steps.count_unanswerable(pending, answer)
            raise
        lines = self._steps.settle(exchange, pending, answer, head, body)
        if exchange.keep is not None:
            await exchange.keep(lines, body)
        await exchange.respond_whole(lines, body)

    async def _inputs(self, exchange: Exchange, lane: Lane, call: Call) -> Inputs:
        if not exchange.large_body_bytes(self._steps.max_body_bytes):
            return call.inputs(lane.version)
        return await self._steps.turns.take(lane.tenant_id, lambda: call.inputs(lane.version))

    async def _outcome(self, exchange: Exchange, outcome: asyncio.Future[Answer]) -> Answer:
        """Waits for the one outcome; a client that leaves cancels what it asked for.

        Not so with an idempotency key: it will ask again, and the answer is kept for it.
        """
        connection, abandon = exchange.connection, self._steps.abandon
        if exchange.keep is not None:
            connection = None
        elif exchange.is_gone:  # it left while its text was tokenised
            abandon(exchange)
        if connection is not None:
            connection.on_lost = lambda: abandon(exchange)
        try:
            return await outcome
        finally:
            if connection is not None:
                connection.on_lost = None
            abandon(exchange)  # no effect unless this task was cancelled


def _answered(exchange: Exchange) -> tuple[Pending, Payload]:
    """The try that was answered: not always the first one."""
    assert exchange.pending is not None and exchange.payload is not None
    return exchange.pending, exchange.payload


async def _encoded(call: Call, lane: Lane, answer: Answer, payload: Payload) -> tuple[bytes, bytes]:
    if answer.body.nbytes <= LONG_ANSWER_BYTES:
        return call.answer(lane, answer, payload)
    return await call.answer_politely(lane, answer, payload)


def _resolve(outcome: asyncio.Future[Answer], known: Answer | DataPlaneError) -> None:
    if outcome.done():  # the task that waited was cancelled
        return
    if isinstance(known, DataPlaneError):
        outcome.set_exception(known)
    else:
        outcome.set_result(known)
