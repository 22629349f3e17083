"""The gateway as an ASGI application: which path is whose, and what an error looks like there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import structlog

from serving.errors import ClientClosedRequest, DataPlaneError, MethodNotAllowed, RouteNotFound
from serving.gateway.asgi import AsgiInference
from serving.gateway.exchange import Exchange, Receive, Scope, Send
from serving.gateway.hot import HotRoutes
from serving.gateway.inference import Call, Inference
from serving.gateway.metrics import Metrics
from serving.gateway.once import OnceOnly
from serving.gateway.protocols import generate, oip, openai
from serving.gateway.refusals import JSON_TYPE, Headers, closing, refusal
from serving.gateway.routing import Router
from serving.gateway.snapshot import Grant, Snapshot
from serving.gateway.visit import RequestIds
from serving.telemetry.prometheus import CONTENT_TYPE, Received, exposition
from serving.telemetry.repetitions import Repetitions
from serving.telemetry.resilience import Resilience

log = structlog.get_logger("tidegate.gateway")

Handler = Callable[[Exchange], Awaitable[None]]
_encode = msgspec.json.Encoder().encode


class GatewayApp:
    def __init__(
        self, snapshot: Snapshot, router: Router, inference: Inference, once: OnceOnly, metrics: Metrics
    ) -> None:
        self._snapshot = snapshot
        self._router = router
        self._inference = inference
        self._asgi = AsgiInference(inference, once)
        self._once = once
        self._metrics = metrics
        self._ids = RequestIds()
        self.hot = HotRoutes(inference, self._ids)
        self._fixed: dict[str, tuple[str, Handler]] = {
            "/v1/embeddings": ("POST", self._embeddings),
            "/v1/models": ("GET", self._list_models),
            "/v2": ("GET", self._server_metadata),
            "/v2/health/live": ("GET", self._live),
            "/v2/health/ready": ("GET", self._ready),
            "/livez": ("GET", self._live),
            "/readyz": ("GET", self._ready),
            "/metrics": ("GET", self._exposition),
        }

    @property
    def is_ready(self) -> bool:
        return self._snapshot.is_loaded and not self._inference.is_draining

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        exchange = Exchange(scope, receive, send, self._ids)
        try:
            await self._route(exchange)
        except ClientClosedRequest:
            return  # nobody is there to be told
        except DataPlaneError as error:
            await self._end(exchange, error)
        except Exception:  # the top of a request: one bad request fails alone
            log.exception("request.crashed", request_id=exchange.request_id, path=exchange.path[:200])
            if exchange.endpoint:  # that of an inference, which was counted in
                self._inference.count_refusal(exchange, DataPlaneError("internal error"))
            await self._end(exchange, DataPlaneError("internal error"))

    async def _end(self, exchange: Exchange, error: DataPlaneError) -> None:
        """Answer with the error: as an answer of its own, or where a streamed one has begun as its last event."""
        if (
            error.misuse is not None and not exchange.endpoint
        ):  # that of an inference was noted when it was counted
            self._inference.note_misuse(exchange, error.misuse)
        if not exchange.is_started:
            await self._refuse(exchange, error)
        elif exchange.events is not None:
            await exchange.events.fail(error)

    # ------------------------------------------------------------ paths

    async def _route(self, exchange: Exchange) -> None:
        """Raises `RouteNotFound` or `MethodNotAllowed`, or what the handler raises."""
        path = exchange.path
        fixed = self._fixed.get(path) or self._find(path)
        if fixed is None and len(path) > 1 and path.endswith("/"):
            fixed = self._fixed.get(path[:-1]) or self._find(path[:-1])
        if fixed is None:
            raise RouteNotFound(f"nothing is at {path[:200]}")
        method, handler = fixed
        if exchange.method == method or (exchange.method == "HEAD" and method == "GET"):
            await handler(exchange)
        elif exchange.method == "OPTIONS":
            await self._send(exchange, 204, [(b"allow", _allow(method))], b"")
        else:
            raise MethodNotAllowed(f"{path[:200]} takes {method}", numbers={"allow": _allow(method).decode()})

    def _find(self, path: str) -> tuple[str, Handler] | None:
        """Paths that name a model."""
        parts = path.split("/")
        if path.startswith("/v1/models/") and len(parts) == 4 and parts[3]:
            return "GET", lambda exchange: self._model_card(exchange, parts[3])
        if not path.startswith("/v2/models/") or not parts[3:] or not parts[3]:
            return None
        name, rest, pin = parts[3], parts[4:], None
        if rest[:1] == ["versions"] and len(rest) >= 2 and rest[1]:
            pin, rest = rest[1], rest[2:]
        if rest == ["infer"]:
            return "POST", lambda exchange: self._infer(exchange, name, pin)
        if rest in (["generate"], ["generate_stream"]):
            is_streamed = rest == ["generate_stream"]
            return "POST", lambda exchange: self._generate(exchange, name, pin, is_streamed)
        if rest == ["ready"]:
            return "GET", lambda exchange: self._model_ready(exchange, name, pin)
        if not rest:
            return "GET", lambda exchange: self._model_metadata(exchange, name, pin)
        return None

    # ------------------------------------------------------------ inference

    async def _infer(self, exchange: Exchange, name: str, pin: str | None) -> None:
        def parse(body: bytes) -> tuple[Call, str]:
            return oip.InferCall(exchange.headers, body), name

        await self._asgi.serve(exchange, parse, oip.ENDPOINT, (name, pin))

    async def _generate(self, exchange: Exchange, name: str, pin: str | None, is_streamed: bool) -> None:
        def parse(body: bytes) -> tuple[Call, str]:
            return generate.GenerateCall(body, is_streamed=is_streamed), name

        await self._asgi.serve(exchange, parse, oip.ENDPOINT, (name, pin))

    async def _embeddings(self, exchange: Exchange) -> None:
        await self._asgi.serve(exchange, _parse_embeddings, openai.ENDPOINT)

    # ------------------------------------------------------------ models

    def _grant(self, exchange: Exchange) -> Grant:
        exchange.check_headers()
        return self._inference.grant(exchange)

    async def _list_models(self, exchange: Exchange) -> None:
        grant = self._grant(exchange)
        cards = [openai.model_card(model) for model in self._snapshot.models_of(grant)]
        await self._json(exchange, 200, {"object": "list", "data": cards})

    async def _model_card(self, exchange: Exchange, name: str) -> None:
        grant = self._grant(exchange)
        await self._json(exchange, 200, openai.model_card(self._router.model(grant, name)))

    async def _model_metadata(self, exchange: Exchange, name: str, pin: str | None) -> None:
        grant = self._grant(exchange)
        version = self._router.version(grant, name, pin)
        await self._json(exchange, 200, oip.model_metadata(self._router.model(grant, name), version))

    async def _model_ready(self, exchange: Exchange, name: str, pin: str | None) -> None:
        grant = self._grant(exchange)
        version = self._router.version(grant, name, pin)
        is_ready = self._inference.dispatcher.pool.is_ready(version.id)
        await self._json(exchange, 200 if is_ready else 503, {"name": name, "ready": is_ready})

    # ------------------------------------------------------------ the process

    async def _server_metadata(self, exchange: Exchange) -> None:
        await self._json(exchange, 200, oip.SERVER)

    async def _live(self, exchange: Exchange) -> None:
        await self._json(exchange, 200, {"live": True})

    async def _ready(self, exchange: Exchange) -> None:
        await self._json(exchange, 200 if self.is_ready else 503, {"ready": self.is_ready})

    async def _exposition(self, exchange: Exchange) -> None:
        """No key is asked for, so only this machine may read it, whatever address the gateway listens on."""
        if not exchange.is_local:
            raise RouteNotFound("nothing is at /metrics")
        slugs = {tenant.id: tenant.slug for tenant in self._snapshot.tenants.values()}
        numbers = {version.id: str(version.number) for version in self._snapshot.versions.values()}
        resilience = Resilience(self._inference.dispatcher.pool.report(self._snapshot.versions))
        received = Received(self._metrics.received, self._metrics.replayed)
        repetitions = Repetitions(self._once.counts)
        body = exposition(self._metrics.totals(), slugs, numbers, resilience, received, repetitions)
        await self._send(exchange, 200, [(b"content-type", CONTENT_TYPE)], body)

    # ------------------------------------------------------------ answers

    async def _json(self, exchange: Exchange, status: int, body: Any) -> None:
        await self._send(exchange, status, [JSON_TYPE], _encode(body))

    async def _refuse(self, exchange: Exchange, error: DataPlaneError) -> None:
        headers, body = refusal(exchange, error, is_openai=exchange.path.startswith("/v1/"))
        await self._send(exchange, error.status, headers, body)

    async def _send(self, exchange: Exchange, status: int, headers: Headers, body: bytes) -> None:
        headers += closing(exchange, body)[status == 204 :]  # nothing has no length
        if exchange.is_replayed:
            headers.append((b"idempotency-replayed", b"true"))
        await exchange.respond(status, headers, body)


def _parse_embeddings(body: bytes) -> tuple[Call, str]:
    call = openai.EmbeddingsCall(body)
    return call, call.model


def _allow(method: str) -> bytes:
    return b"GET, HEAD, OPTIONS" if method == "GET" else b"%b, OPTIONS" % method.encode()
