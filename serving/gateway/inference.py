"""The life of one inference request, from its key to its receipt."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from serving.contract import VersionEntry
from serving.errors import (
    ClientClosedRequest,
    DataPlaneError,
    Draining,
    InvalidRequest,
    UnsupportedMediaType,
    from_code,
)
from serving.gateway.admission import TenantGate
from serving.gateway.auth import Authenticator
from serving.gateway.dispatch import Dispatcher
from serving.gateway.exchange import SMALL_BODY_BYTES, Exchange
from serving.gateway.inputs import Inputs, Texts, TokenLists, check_rows, pack_tokens
from serving.gateway.large import Room, Turns
from serving.gateway.metrics import Metrics
from serving.gateway.pending import Answer, Payload, Pending
from serving.gateway.receipts import receipt_lines, spent
from serving.gateway.routing import Lane, Router
from serving.gateway.snapshot import Grant
from serving.gateway.tokenise import Tokenisers
from serving.gateway.usage import Usage
from serving.wire import Stages

DEADLINE_HEADER = b"x-tidegate-deadline-ms"
MANY_IDS = 20_000
MAX_HELD_BYTES = 1 << 30
"""Large bodies held at one time, all tenants together."""
_REFUSED_TYPES = (b"multipart/", b"image/", b"audio/", b"video/", b"application/xml", b"text/html")


class Call(Protocol):
    """One parsed request of either protocol."""

    @property
    def endpoint(self) -> str: ...

    @property
    def timeout_us(self) -> int | None: ...

    def inputs(self, version: VersionEntry) -> Inputs: ...

    async def answer(self, lane: Lane, answer: Answer, payload: Payload) -> tuple[bytes, bytes]: ...


Parse = Callable[[bytes], tuple[Call, str]]
"""Body → call and model name. Raises `InvalidRequest`."""
Target = tuple[str, str | None]
"""Model name and pinned version number, where the path says them."""


class Inference:
    def __init__(
        self,
        authenticator: Authenticator,
        router: Router,
        tokenisers: Tokenisers,
        metrics: Metrics,
        usage: Usage,
        *,
        max_body_bytes: int,
        share: float = 1.0,
    ) -> None:
        self.dispatcher = Dispatcher(self._account_late)
        self._authenticator = authenticator
        self._router = router
        self._tokenisers = tokenisers
        self._metrics = metrics
        self._usage = usage
        self._max_body_bytes = max_body_bytes
        self._share = share
        self._gates: dict[str, TenantGate] = {}
        self._room = Room(MAX_HELD_BYTES)
        self._turns = Turns()
        self.is_draining = False

    async def serve(
        self, exchange: Exchange, parse: Parse, endpoint: str, target: Target | None = None
    ) -> None:
        """Answer the request. Raises `DataPlaneError` for a refusal, after counting it."""
        grant: Grant | None = None
        try:
            grant = self._authenticate(exchange)
            if target is not None:  # refused before its body is read, and counted under its model
                exchange.lane = self._router.lane(grant, *target, endpoint)
            _check_media(exchange.headers)
            size_bytes = exchange.large_body_bytes(self._max_body_bytes)
            if not size_bytes:
                await self._parsed(exchange, grant, parse, endpoint)
            else:
                with self._room.hold(grant.tenant.id, size_bytes):
                    await self._parsed(exchange, grant, parse, endpoint)
        except DataPlaneError as error:
            self._count_refusal(exchange, grant, endpoint, error)
            raise

    def authenticate(self, exchange: Exchange) -> Grant:
        """For the pages that list models. Raises as `Authenticator.authenticate`."""
        exchange.check_headers()
        return self._authenticator.authenticate(exchange.headers, time.time())

    # ------------------------------------------------------------ steps

    def _authenticate(self, exchange: Exchange) -> Grant:
        if self.is_draining:
            raise Draining("this gateway is shutting down", retry_after_s=1.0)
        grant = self.authenticate(exchange)
        exchange.tenant_id = grant.tenant.id
        return grant

    async def _parsed(self, exchange: Exchange, grant: Grant, parse: Parse, endpoint: str) -> None:
        body = await exchange.read_body(self._max_body_bytes)
        if len(body) <= SMALL_BODY_BYTES:
            call, name = parse(body)
        else:
            call, name = await self._turns.take(grant.tenant.id, lambda: parse(body))
        lane = exchange.lane
        if lane is None:
            lane = exchange.lane = self._router.lane(grant, name, None, endpoint)
        await self._admitted(exchange, grant, lane, call)

    async def _admitted(self, exchange: Exchange, grant: Grant, lane: Lane, call: Call) -> None:
        gate = self._gates.get(grant.tenant.id)
        if gate is None:
            gate = self._gates[grant.tenant.id] = TenantGate()
        refusal = gate.enter(grant.tenant, time.monotonic(), self._share)
        if refusal is not None:
            raise from_code(
                refusal.code,
                refusal.message,
                numbers=refusal.numbers,
                retry_after_s=refusal.retry_after_s,
            )
        lane.series.pending += 1
        try:
            payload = await self._payload(grant, lane, await self._inputs(exchange, lane, call))
            deadline = exchange.started_ns / 1e9 + _deadline_s(lane, call, exchange.headers)
            pending = self.dispatcher.submit(lane, grant.key.id, payload, deadline)
            answer = await self._outcome(exchange, pending)
            try:
                head, body = await call.answer(lane, answer, payload)
            except DataPlaneError:
                self._account_late(pending, answer.result.stages)
                raise
            await self._settle(exchange, grant, lane, payload, answer, head, body)
        finally:
            lane.series.pending -= 1
            gate.leave()

    async def _inputs(self, exchange: Exchange, lane: Lane, call: Call) -> Inputs:
        if not exchange.large_body_bytes(self._max_body_bytes):
            return call.inputs(lane.version)
        return await self._turns.take(lane.tenant_id, lambda: call.inputs(lane.version))

    async def _payload(self, grant: Grant, lane: Lane, inputs: Inputs) -> Payload:
        if isinstance(inputs, Payload):
            return inputs
        if isinstance(inputs, Texts):
            return pack_tokens(await self._tokenisers.rows(grant.tenant.id, lane.version, inputs.texts))
        return await self._checked(lane, inputs)

    async def _checked(self, lane: Lane, inputs: TokenLists) -> Payload:
        tokeniser = self._tokenisers.ready(lane.version.id) or await self._tokenisers.wait(lane.version)
        check_rows(len(inputs.rows), "input")
        if sum(map(len, inputs.rows)) <= MANY_IDS:
            return pack_tokens(tokeniser.check_ids(inputs.rows))
        return await self._turns.take(lane.tenant_id, lambda: pack_tokens(tokeniser.check_ids(inputs.rows)))

    async def _outcome(self, exchange: Exchange, pending: Pending) -> Answer:
        """Waits for the one outcome; a client that leaves cancels what it asked for."""
        connection = exchange.connection
        if connection is not None:
            connection.on_lost = lambda: self.dispatcher.abandon(pending)
        if exchange.is_gone:  # it left while its text was tokenised
            self.dispatcher.abandon(pending)
        try:
            return await pending.outcome
        finally:
            if connection is not None:
                connection.on_lost = None
            self.dispatcher.abandon(pending)  # no effect unless this task was cancelled

    async def _settle(
        self,
        exchange: Exchange,
        grant: Grant,
        lane: Lane,
        payload: Payload,
        answer: Answer,
        head: bytes,
        body: bytes,
    ) -> None:
        stages = answer.result.stages
        times = spent(stages, exchange.elapsed_us())
        lane.series.answered(stages, times.gateway_us, times.total_us, payload.rows, payload.tokens)
        used = self._usage.of(lane, grant.key.id, time.time())
        used.requests += 1
        used.rows += payload.rows
        used.tokens += payload.tokens
        used.device_us += stages.device_us
        lines = b"%bcontent-length: %d\r\n%b" % (
            head,
            len(body),
            receipt_lines(exchange.request_id, lane, stages, times),
        )
        await exchange.respond_whole(lines, body)

    # ------------------------------------------------------------ counting

    def _count_refusal(
        self, exchange: Exchange, grant: Grant | None, endpoint: str, error: DataPlaneError
    ) -> None:
        lane = exchange.lane
        if lane is None or grant is None:
            self._metrics.unrouted(exchange.tenant_id, endpoint).failed(error.code)
            return
        lane.series.failed(error.code)
        used = self._usage.of(lane, grant.key.id, time.time())
        used.requests += 1
        if isinstance(error, ClientClosedRequest):
            used.cancelled += 1
        else:
            used.failed += 1

    def _account_late(self, pending: Pending, stages: Stages) -> None:
        """Device time of a request that failed or that nobody waits for: it was used all the same."""
        pending.lane.series.used(stages.device_us)
        self._usage.of(pending.lane, pending.key_id, time.time()).device_us += stages.device_us


def _deadline_s(lane: Lane, call: Call, headers: dict[bytes, bytes]) -> float:
    """The profile's deadline; a request may only make it tighter. Raises `InvalidRequest`."""
    deadline_s = lane.deadline_s
    if call.timeout_us is not None:
        deadline_s = min(deadline_s, call.timeout_us / 1e6)
    header = headers.get(DEADLINE_HEADER)
    if header is not None:
        if not header.isdigit() or int(header[:12]) < 1:
            raise InvalidRequest("x-tidegate-deadline-ms is a whole number of milliseconds, at least 1")
        deadline_s = min(deadline_s, int(header[:12]) / 1000)
    return deadline_s


def _check_media(headers: dict[bytes, bytes]) -> None:
    """Lenient: only what can not be one of our bodies is refused. Raises `UnsupportedMediaType`."""
    content_type = headers.get(b"content-type")
    if content_type is not None and content_type.lower().startswith(_REFUSED_TYPES):
        raise UnsupportedMediaType("send application/json, or application/octet-stream with binary tensors")
    encoding = headers.get(b"content-encoding")
    if encoding is not None and encoding.lower() != b"identity":
        raise UnsupportedMediaType("compressed bodies are not supported")
