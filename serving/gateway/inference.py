"""The life of one inference request as steps that know neither ASGI nor sockets.

`authenticate`, `route`, `enter`, `send`, and when the outcome came `answer`, `settle`, `leave`; `count_refusal`
for what ended otherwise. Whoever drives them (`asgi.py` with a task per request, `hot.py` with callbacks) owes
each visit that entered exactly one `leave`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from serving.contract import SlaClass, VersionEntry
from serving.errors import (
    ClientClosedRequest,
    DataPlaneError,
    Draining,
    InvalidRequest,
    UnsupportedMediaType,
    from_code,
)
from serving.gateway import priority
from serving.gateway.admission import TenantGate
from serving.gateway.auth import Authenticator
from serving.gateway.dispatch import Dispatcher
from serving.gateway.fallback import Attempts
from serving.gateway.inputs import Inputs, Texts, TokenLists, check_rows, pack_tokens
from serving.gateway.key_uses import KeyUses
from serving.gateway.large import Room, Turns
from serving.gateway.metrics import Metrics
from serving.gateway.pending import Answer, OnOutcome, Payload, Pending
from serving.gateway.priority import PRIORITY_HEADER
from serving.gateway.quotas import Quotas
from serving.gateway.receipts import Spent, receipt_lines, spent
from serving.gateway.routing import Lane, Router
from serving.gateway.snapshot import Grant
from serving.gateway.spans import RequestSpans
from serving.gateway.sse import StreamShape
from serving.gateway.tokenise import Tokenisers
from serving.gateway.usage import Usage
from serving.gateway.visit import Visit
from serving.prices import PriceTable, Rates
from serving.wire import Stages

DEADLINE_HEADER = b"x-tidegate-deadline-ms"
MANY_IDS = 20_000
MAX_HELD_BYTES = 1 << 30
"""Large bodies held at one time, all tenants together."""
LONG_ANSWER_BYTES = 64 << 10
"""Longer results are encoded in slices."""
_REFUSED_TYPES = (b"multipart/", b"image/", b"audio/", b"video/", b"application/xml", b"text/html")


class Call(Protocol):
    """One parsed request of either protocol."""

    @property
    def endpoint(self) -> str: ...

    @property
    def timeout_us(self) -> int | None: ...

    @property
    def sla_class(self) -> SlaClass | None: ...

    @property
    def events(self) -> StreamShape | None:
        """What a streamed answer looks like; None when the answer is wanted as a whole."""
        ...

    def inputs(self, version: VersionEntry) -> Inputs: ...

    def answer(self, lane: Lane, answer: Answer, payload: Payload) -> tuple[bytes, bytes]: ...

    async def answer_politely(self, lane: Lane, answer: Answer, payload: Payload) -> tuple[bytes, bytes]: ...


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
        prices: PriceTable,
        quotas: Quotas,
        key_uses: KeyUses,
        *,
        max_body_bytes: int,
        share: float = 1.0,
        spans: RequestSpans | None = None,
    ) -> None:
        self.quotas = quotas
        self.dispatcher = Dispatcher(self._account_late, quotas.cover)
        self.max_body_bytes = max_body_bytes
        self.room = Room(MAX_HELD_BYTES)
        self.turns = Turns()
        self.note_misuse = key_uses.misused
        self.is_draining = False
        self.spans = spans
        """None where nobody collects them."""
        self._authenticator = authenticator
        self._router = router
        self._tokenisers = tokenisers
        self._metrics = metrics
        self._usage = usage
        self._prices = prices
        self._share = share
        self._gates: dict[str, TenantGate] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    # ------------------------------------------------------------ in

    def count_in(self) -> None:
        """Owed once for every visit that one of the ways in makes its own."""
        self._metrics.received += 1

    def count_replay(self, visit: Visit) -> None:
        """The visit got the answer or the failure of an earlier one, and counts as neither."""
        self._metrics.replayed += 1
        if visit.is_recorded and self.spans is not None:
            self.spans.repeated(visit)

    def authenticate(self, visit: Visit, endpoint: str) -> Grant:
        """Raises `Draining`, or as `Authenticator.authenticate`."""
        visit.endpoint = endpoint
        if self.is_draining:
            raise Draining("this gateway is shutting down", retry_after_s=1.0)
        grant = visit.grant = self.grant(visit)
        visit.tenant_id = grant.tenant.id
        if self.spans is not None:
            self.spans.choose(visit)
        return grant

    def recall(self, visit: Visit, grant: Grant, endpoint: str) -> bool:
        """`authenticate` for headers that were given `grant` before: False where it has to be asked again."""
        if self.is_draining or not self._authenticator.still_holds(grant, time.time()):
            return False
        visit.endpoint, visit.grant, visit.tenant_id = endpoint, grant, grant.tenant.id
        if self.spans is not None:
            self.spans.choose(visit)
        return True

    def grant(self, visit: Visit) -> Grant:
        """Who asks, also while draining. Raises as `Authenticator.authenticate`."""
        return self._authenticator.admit(visit, time.time())

    def route(self, visit: Visit, grant: Grant, name: str, pin: str | None) -> Lane:
        """Raises as `Router.lane`."""
        lane = visit.lane = self._router.lane(grant, name, pin, visit.endpoint)
        return lane

    def fixed_lane(self, grant: Grant, endpoint: str, name: str, pin: str | None) -> Lane | None:
        """The lane that every such request takes while the grant holds; None where versions share them."""
        return self._router.lane(grant, name, pin, endpoint) if self._router.is_fixed(name, pin) else None

    def lower(self, visit: Visit, lane: Lane, call: Call) -> Lane:
        """The lane in the class the request wishes for, if that is a lower one. Raises `InvalidRequest`."""
        header = visit.headers.get(PRIORITY_HEADER)
        wish = call.sla_class
        if header is None and wish is None:
            return lane
        own = lane.profile.sla_class
        for wished in (wish, None if header is None else priority.of_header(header)):
            own = own if wished is None else priority.lower(own, wished)
        lane = visit.lane = self._router.lowered(lane, own)
        return lane

    def enter(self, visit: Visit, grant: Grant, lane: Lane) -> None:
        """Count the request in, or raise the refusal of its tenant's gate."""
        tenant = grant.tenant
        gate = self._gates.get(tenant.id)
        if gate is None:
            gate = self._gates[tenant.id] = TenantGate()
        refusal = gate.enter(tenant, time.monotonic(), self._share)
        if refusal is not None:
            raise from_code(
                refusal.code,
                refusal.message,
                numbers=refusal.numbers,
                retry_after_s=refusal.retry_after_s,
            )
        visit.gate = gate
        lane.series.pending += 1

    def leave(self, visit: Visit) -> None:
        """Count it out; a second call does nothing."""
        if visit.reservation is not None:
            visit.reservation.release()
            visit.reservation = None
        gate, visit.gate = visit.gate, None
        if gate is not None and visit.lane is not None:
            visit.lane.series.pending -= 1
            gate.leave()

    def payload_now(self, lane: Lane, inputs: Inputs) -> Payload | None:
        """What the worker gets, None where that takes waiting (`payload`). Raises `InvalidRequest`."""
        if isinstance(inputs, Payload):
            return inputs
        if isinstance(inputs, Texts):
            rows = self._tokenisers.rows_now(lane.tenant_id, lane.version, inputs.texts)
            return None if rows is None else pack_tokens(rows)
        return None

    async def payload(self, lane: Lane, inputs: Inputs) -> Payload:
        """What the worker gets. Raises `InvalidRequest` or `ModelNotReady`."""
        if isinstance(inputs, Payload):
            return inputs
        if isinstance(inputs, Texts):
            return pack_tokens(await self._tokenisers.rows(lane.tenant_id, lane.version, inputs.texts))
        return await self._checked(lane, inputs)

    async def _checked(self, lane: Lane, inputs: TokenLists) -> Payload:
        tokeniser = self._tokenisers.ready(lane.version.id) or await self._tokenisers.wait(lane.version)
        check_rows(len(inputs.rows), "input")
        if sum(map(len, inputs.rows)) <= MANY_IDS:
            return pack_tokens(tokeniser.check_ids(inputs.rows))
        return await self.turns.take(lane.tenant_id, lambda: pack_tokens(tokeniser.check_ids(inputs.rows)))

    def send(
        self, visit: Visit, grant: Grant, lane: Lane, call: Call, payload: Payload, on_outcome: OnOutcome
    ) -> None:
        """`visit.pending` is the newest try; what it answered is known to `visit.lane`.

        Raises `InvalidRequest` for a bad deadline, or as `Dispatcher.submit`.
        """
        if lane.has_fallback:
            substitute = self._router.fallback(grant, lane)
            if substitute is not None and self.dispatcher.pool.is_ready(substitute.version.id):
                Attempts(self, visit, lane, substitute, call, on_outcome).begin(payload)
                return
        self.submit(visit, lane, call, payload, on_outcome)

    def submit(
        self,
        visit: Visit,
        lane: Lane,
        call: Call,
        payload: Payload,
        on_outcome: OnOutcome,
        *,
        has_substitute: bool = False,
    ) -> None:
        """One try. Raises as `send`."""
        assert visit.grant is not None
        arrived = visit.started_ns / 1e9
        deadline = arrived + _deadline_s(lane, call, visit.headers)
        traceparent = "" if visit.trace is None else visit.trace.traceparent
        visit.payload = payload
        visit.pending = self.dispatcher.submit(
            lane,
            visit.grant.key.id,
            payload,
            deadline,
            on_outcome,
            traceparent,
            visit.stream,
            has_substitute=has_substitute,
            queue_shares=() if visit.binding is None else visit.binding.queue_shares,
        )
        visit.pending.arrived = arrived
        visit.pending.reservation = visit.reservation

    def move(self, visit: Visit, lane: Lane) -> None:
        """From now on the visit is one of that lane."""
        if visit.lane is not None and visit.gate is not None:
            visit.lane.series.pending -= 1
            lane.series.pending += 1
        visit.lane = lane

    def abandon(self, visit: Visit) -> None:
        """The client is gone: whatever was sent for it is cancelled, and nothing more will be sent."""
        visit.is_abandoned = True
        if visit.pending is not None:
            self.dispatcher.abandon(visit.pending)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Work of a request that nobody waits for as a task."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ------------------------------------------------------------ out

    def settle(self, visit: Visit, pending: Pending, answer: Answer, head: bytes, body: bytes) -> bytes:
        """Count a good answer; the header lines it leaves with."""
        times = self.count_answer(visit, pending, answer)
        receipt = receipt_lines(visit.request_id, pending.lane, answer.result.stages, times)
        if visit.fallback is not None:
            receipt += visit.fallback.header_line()
        if visit.binding is not None:
            receipt += self.quotas.lines(visit.binding)
        if visit.trace is not None:
            receipt += b"traceparent: %b\r\n" % visit.trace.traceparent.encode()
        return b"%bcontent-length: %d\r\n%b" % (head, len(body), receipt)

    def count_answer(
        self, visit: Visit, pending: Pending, answer: Answer, first_chunk_us: int | None = None
    ) -> Spent:
        """Count a good answer. One that was streamed is in time when its first chunk was."""
        lane, payload = pending.lane, visit.payload
        assert payload is not None
        stages = answer.result.stages
        now = time.time()
        rows, tokens = payload.rows, payload.tokens
        parts = self._rates(pending, now).answer_parts(stages.device_us, tokens)
        times = spent(stages, visit.elapsed_us(), parts)
        lane.series.answered(stages, times.gateway_us, times.total_us, rows, tokens, first_chunk_us, parts)
        used = self._usage.of(lane, pending.key_id, now, visit)
        used.count_answer(rows, tokens, stages.device_us, parts)
        if visit.reservation is not None:
            self.quotas.settle(visit.reservation, pending, payload, stages, parts)
        if visit.is_recorded and self.spans is not None:
            self.spans.answered(visit, answer, times, first_chunk_us)
        if visit.fallback is not None:
            self.dispatcher.pool.of(visit.fallback.lane.version.id).fell_back(visit.fallback.reason)
        return times

    def count_unanswerable(self, pending: Pending, answer: Answer) -> None:
        """The engine ran, but its result is not what was asked for."""
        self._account_late(pending, answer.result.stages)

    def count_refusal(self, visit: Visit, error: DataPlaneError) -> None:
        if visit.is_recorded and self.spans is not None:
            self.spans.refused(visit, error)
        if error.misuse is not None:
            self.note_misuse(visit, error.misuse)
        lane, grant = visit.lane, visit.grant
        if lane is None or grant is None:
            self._metrics.unrouted(visit.tenant_id, visit.endpoint).failed(error.code)
            return
        lane.series.failed(error.code)
        used = self._usage.of(lane, grant.key.id, time.time(), visit)
        if isinstance(error, ClientClosedRequest):
            used.count_cancellation()
        else:
            used.count_failure()

    def _account_late(self, pending: Pending, stages: Stages) -> None:
        """Device time of a request that failed or that nobody waits for: it was used all the same."""
        now = time.time()
        parts = self._rates(pending, now).device_parts(stages.device_us)
        pending.lane.series.used(stages.device_us, parts)
        used = self._usage.of(pending.lane, pending.key_id, now)
        used.add_device_time(stages.device_us, parts, is_cancelled=pending.is_cancelled)
        self.quotas.add_late(pending, stages, parts)

    def _rates(self, pending: Pending, now: float) -> Rates:
        """What binds where and when the request ran."""
        version, replica = pending.lane.version, pending.replica
        replica_id = "" if replica is None else replica.spec.id  # `replica_id` without the call
        return self._prices.rates(replica_id, version.model, version.price_micro_per_device_hour, now)


def check_media(headers: dict[bytes, bytes]) -> None:
    """Lenient: only what can not be one of our bodies is refused. Raises `UnsupportedMediaType`."""
    content_type = headers.get(b"content-type")
    if content_type is not None and content_type.lower().startswith(_REFUSED_TYPES):
        raise UnsupportedMediaType("send application/json, or application/octet-stream with binary tensors")
    encoding = headers.get(b"content-encoding")
    if encoding is not None and encoding.lower() != b"identity":
        raise UnsupportedMediaType("compressed bodies are not supported")


def _deadline_s(lane: Lane, call: Call, headers: dict[bytes, bytes]) -> float:
    """The profile's deadline; a request may only make it tighter. Raises `InvalidRequest`."""
    deadline_s = lane.deadline_s
    header, timeout_us = headers.get(DEADLINE_HEADER), call.timeout_us
    if timeout_us is not None:
        deadline_s = min(deadline_s, timeout_us / 1e6)
    if header is not None:
        if not header.isdigit() or int(header[:12]) < 1:
            raise InvalidRequest("x-tidegate-deadline-ms is a whole number of milliseconds, at least 1")
        deadline_s = min(deadline_s, int(header[:12]) / 1000)
    return deadline_s
