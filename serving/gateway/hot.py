"""Hot routes: the two inference paths served by callbacks at protocol level, without a task or an ASGI scope.

Only what is common is taken: a small body of known length on a connection where nothing else is open, no
header that asks for more. Everything else goes to the ASGI application, which serves the same paths by the same
steps (`inference.py`), so that a client cannot tell the two ways apart.
"""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from serving.errors import ClientClosedRequest, DataPlaneError
from serving.gateway.idempotency import IDEMPOTENCY_KEY
from serving.gateway.inference import LONG_ANSWER_BYTES, Call, Inference, check_media
from serving.gateway.inputs import Inputs
from serving.gateway.known_head import KnownHead, cut
from serving.gateway.pending import Answer, Payload, Pending
from serving.gateway.protocols import oip, openai
from serving.gateway.refusals import closing, refusal
from serving.gateway.routing import Lane
from serving.gateway.snapshot import Grant
from serving.gateway.visit import SMALL_BODY_BYTES, RequestIds, Visit
from serving.quotas.holding import Reservation

if TYPE_CHECKING:
    from serving.gateway.hot_connection import HotConnection

log = structlog.get_logger("tidegate.gateway.hot")

RARE_HEADERS = frozenset((b"transfer-encoding", b"expect", b"upgrade", b"trailer", b"te", IDEMPOTENCY_KEY))
"""A request with one of these goes to the ASGI application."""
MAX_KNOWN_PATHS = 1024
_INFER = re.compile(rb"/v2/models/([A-Za-z0-9._-]+)(?:/versions/([A-Za-z0-9._-]+))?/infer")


class Route(NamedTuple):
    """One hot path and what its protocol is."""

    endpoint: str
    is_openai: bool
    parse: Callable[[dict[bytes, bytes], bytes], tuple[Call, str]]
    name: str | None
    """The model, where the path says it."""
    pin: str | None


class _Unheard:
    """Stands for the event by which uvicorn wakes a reader: nobody waits for a hot request."""

    def set(self) -> None: ...


class HotRequest(Visit):
    """One request on a hot route; to the connection it is what uvicorn calls a cycle."""

    __slots__ = (
        "call",
        "connection",
        "disconnected",
        "hot",
        "keep_alive",
        "more_body",
        "response_complete",
        "route",
    )
    message_event = _Unheard()

    def __init__(
        self,
        hot: HotRoutes,
        connection: HotConnection,
        route: Route,
        headers: dict[bytes, bytes],
        keep_alive: bool,
    ) -> None:
        super().__init__(headers, hot.ids)
        self.hot = hot
        self.connection = connection
        self.route = route
        self.keep_alive = keep_alive
        self.call: Call | None = None
        self.disconnected = False
        self.more_body = True
        self.response_complete = False

    @property
    def peer(self) -> str | None:
        client = self.connection.client
        return client[0] if client else None

    def lose(self) -> None:
        """The client is gone."""
        self.hot.lose(self)

    def resolve(self, known: Answer | DataPlaneError) -> None:
        self.hot.finish(self, known)


class HotRoutes:
    """`hear` starts a request; the rest follows by itself."""

    def __init__(self, inference: Inference, ids: RequestIds) -> None:
        self._steps = inference
        self.ids = ids
        self._routes: dict[bytes, Route] = {}

    def route(self, path: bytes) -> Route | None:
        """The hot route at a path, as it stands in the request line."""
        found = self._routes.get(path)
        if found is None:
            found = _route(path)
            if found is not None:
                if len(self._routes) >= MAX_KNOWN_PATHS:
                    self._routes.clear()
                self._routes[path] = found
        return found

    def may_wait(self, request: HotRequest) -> bool:
        """Whether the head alone is no reason to refuse, so that the body is worth waiting for."""
        try:
            self._open(request)
        except DataPlaneError:
            return False
        except Exception:  # the top of a request: one bad request fails alone
            log.exception("request.crashed", request_id=request.request_id, endpoint=request.endpoint)
            return False
        return True

    def may_wait_again(self, request: HotRequest, known: KnownHead) -> bool:
        """`may_wait` for a head that is known; False also where it has to be looked at anew."""
        is_fixed = known.lane is not None or known.route.name is None
        return is_fixed and self._recall(request, known)

    def hear(self, request: HotRequest, body: bytes, known: KnownHead | None = None) -> None:
        """The body is there; with `known` the head is that one again. Never raises."""
        request.more_body = False
        self._steps.count_in()
        try:
            if request.grant is None and not (known is not None and self._recall(request, known)):
                self._open(request)
            self._enter(request, body)
        except DataPlaneError as error:
            self._refuse(request, error)
        except Exception:  # the top of a request: one bad request fails alone
            log.exception("request.crashed", request_id=request.request_id, endpoint=request.endpoint)
            self._crash(request)

    def known(self, request: HotRequest, head: bytes) -> KnownHead | None:
        """What to remember of a request that was sent to a worker, if its head may be recognised."""
        parts, grant, route = cut(head), request.grant, request.route
        if parts is None or grant is None or request.pending is None or not request.keep_alive:
            return None
        return KnownHead(*parts, request.headers, route, grant, self._fixed_lane(route, grant))

    def known_anew(self, request: HotRequest, known: KnownHead) -> KnownHead | None:
        """The same head by what holds now, if it still leads to a worker."""
        grant = request.grant
        if grant is None or request.payload is None:
            return None
        return dataclasses.replace(known, grant=grant, lane=self._fixed_lane(known.route, grant))

    def finish(self, request: HotRequest, known: Answer | DataPlaneError) -> None:
        """The outcome. Never raises: it is called from the link to a worker, which others use too."""
        request.connection.on_lost = None
        try:
            if isinstance(known, DataPlaneError):
                self._refuse(request, known)
            elif known.body.nbytes > LONG_ANSWER_BYTES:
                self._spawn(request, self._answer_politely(request, known))
            else:
                self._answer(request, known)
        except Exception:  # the top of a request, as above
            log.exception("request.crashed", request_id=request.request_id, endpoint=request.endpoint)
            self._crash(request)

    def lose(self, request: HotRequest) -> None:
        """The client left: what waits at a worker is cancelled, what still waited for its body is counted."""
        if request.more_body and request.pending is None:
            self._steps.count_in()
            self._refuse(request, ClientClosedRequest("the client is gone"))
        else:
            self._steps.abandon(request)

    # ------------------------------------------------------------ in

    def _fixed_lane(self, route: Route, grant: Grant) -> Lane | None:
        if route.name is None:
            return None
        return self._steps.fixed_lane(grant, route.endpoint, route.name, route.pin)

    def _recall(self, request: HotRequest, known: KnownHead) -> bool:
        if not self._steps.recall(request, known.grant, known.route.endpoint):
            return False
        request.lane = known.lane
        return True

    def _open(self, request: HotRequest) -> None:
        """Everything that needs no body. Raises `DataPlaneError`, uncounted."""
        route = request.route
        grant = self._steps.authenticate(request, route.endpoint)
        if route.name is not None:
            self._steps.route(request, grant, route.name, route.pin)
        check_media(request.headers)

    def _enter(self, request: HotRequest, body: bytes) -> None:
        steps, grant = self._steps, request.grant
        assert grant is not None
        call, name = request.route.parse(request.headers, body)
        lane = request.lane or steps.route(request, grant, name, request.route.pin)
        lane = steps.lower(request, lane, call)
        steps.enter(request, grant, lane)
        request.call = call
        inputs = call.inputs(lane.version)
        payload = steps.payload_now(lane, inputs)
        if payload is None:
            self._spawn(request, self._send_later(request, lane, inputs))
        elif lane.is_limited:
            self._reserve(request, grant, lane, payload)
        else:
            steps.send(request, grant, lane, call, payload, request.resolve)

    async def _send_later(self, request: HotRequest, lane: Lane, inputs: Inputs) -> None:
        grant = request.grant
        assert grant is not None
        payload = await self._steps.payload(lane, inputs)
        self._reserve(request, grant, lane, payload)

    def _reserve(self, request: HotRequest, grant: Grant, lane: Lane, payload: Payload) -> None:
        """Send it if its quotas allow; where they have to be asked first, as soon as they say so."""
        quotas = self._steps.quotas
        binding = quotas.bind(request, grant, lane)
        if binding is None or quotas.take(request, binding, lane, payload):
            self._send(request, grant, lane, payload)
        else:
            quotas.ask(binding, lane, payload, lambda known: self._reserved(request, lane, payload, known))

    def _reserved(
        self, request: HotRequest, lane: Lane, payload: Payload, known: Reservation | DataPlaneError
    ) -> None:
        """Never raises: others wait for the same answer."""
        assert request.grant is not None
        try:
            if isinstance(known, DataPlaneError):
                raise known
            request.reservation = known
            self._send(request, request.grant, lane, payload)
        except DataPlaneError as error:
            self._refuse(request, error)
        except Exception:  # the top of a request, as above
            log.exception("request.crashed", request_id=request.request_id, endpoint=request.endpoint)
            self._crash(request)

    def _send(self, request: HotRequest, grant: Grant, lane: Lane, payload: Payload) -> None:
        if request.is_abandoned:
            raise ClientClosedRequest("the client is gone")
        assert request.call is not None
        self._steps.send(request, grant, lane, request.call, payload, request.resolve)

    # ------------------------------------------------------------ out

    def _answer(self, request: HotRequest, answer: Answer) -> None:
        pending, call, payload = request.pending, request.call, request.payload
        assert pending is not None and call is not None and payload is not None
        try:
            head, body = call.answer(pending.lane, answer, payload)
        except DataPlaneError as error:
            self._steps.count_unanswerable(pending, answer)
            self._refuse(request, error)
            return
        self._settle(request, pending, answer, head, body)

    async def _answer_politely(self, request: HotRequest, answer: Answer) -> None:
        pending, call, payload = request.pending, request.call, request.payload
        assert pending is not None and call is not None and payload is not None
        try:
            head, body = await call.answer_politely(pending.lane, answer, payload)
        except DataPlaneError:
            self._steps.count_unanswerable(pending, answer)
            raise
        self._settle(request, pending, answer, head, body)

    def _settle(
        self, request: HotRequest, pending: Pending, answer: Answer, head: bytes, body: bytes
    ) -> None:
        lines = self._steps.settle(request, pending, answer, head, body)
        self._respond(request, _OK + lines, body)

    def _refuse(self, request: HotRequest, error: DataPlaneError) -> None:
        self._steps.count_refusal(request, error)
        self._steps.leave(request)
        if isinstance(error, ClientClosedRequest):
            request.connection.give_up(request)
            request.pending = None
        else:
            self._respond(request, *_refusal(request, error))

    def _crash(self, request: HotRequest) -> None:
        self._steps.count_refusal(request, DataPlaneError("internal error"))
        self._steps.leave(request)
        if not request.response_complete:
            self._respond(request, *_refusal(request, DataPlaneError("internal error")))

    def _respond(self, request: HotRequest, head: bytes, body: bytes) -> None:
        connection = request.connection
        connection.write_answer(request, head, body)
        request.pending = None  # it holds our callback: without the circle no collector is needed
        if connection.flow.write_paused and request.gate is not None:
            # An answer nobody reads counts against its tenant's concurrency for as long as it lies here.
            self._spawn(request, self._leave_when_read(request))
        else:
            self._steps.leave(request)
        if not request.disconnected:
            connection.on_response_complete()

    async def _leave_when_read(self, request: HotRequest) -> None:
        await request.connection.flow.drain()
        self._steps.leave(request)

    # ------------------------------------------------------------ what has to wait

    def _spawn(self, request: HotRequest, work: Coroutine[Any, Any, None]) -> None:
        connection = request.connection
        task = connection.loop.create_task(self._run(request, work))
        connection.tasks.add(task)
        task.add_done_callback(connection.tasks.discard)

    async def _run(self, request: HotRequest, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except DataPlaneError as error:
            self._refuse(request, error)
        except asyncio.CancelledError:
            self._steps.leave(request)
            raise
        except Exception:  # the top of a request, as above
            log.exception("request.crashed", request_id=request.request_id, endpoint=request.endpoint)
            self._crash(request)


_OK = STATUS_LINE[200]


def _refusal(request: HotRequest, error: DataPlaneError) -> tuple[bytes, bytes]:
    headers, body = refusal(request, error, is_openai=request.route.is_openai)
    lines = [b"%b: %b\r\n" % pair for pair in (*headers, *closing(request, body))]
    return b"".join((STATUS_LINE[error.status], *lines)), body


def _route(path: bytes) -> Route | None:
    if path == b"/v1/embeddings":
        return Route(openai.ENDPOINT, True, _parse_embeddings, None, None)
    match = _INFER.fullmatch(path)
    if match is None:
        return None
    name, pin = match[1].decode(), match[2].decode() if match[2] is not None else None
    return Route(oip.ENDPOINT, False, partial(_parse_infer, name), name, pin)


def _parse_infer(name: str, headers: dict[bytes, bytes], body: bytes) -> tuple[Call, str]:
    return oip.InferCall(headers, body), name


def _parse_embeddings(headers: dict[bytes, bytes], body: bytes) -> tuple[Call, str]:
    call = openai.EmbeddingsCall(body)
    return call, call.model


def is_small(length: bytes | None) -> bool:
    """Whether a `content-length` announces a body that is taken at one go."""
    return length is not None and length.isdigit() and int(length[:20]) <= SMALL_BODY_BYTES
