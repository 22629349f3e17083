"""A connection that recognises hot requests while it parses, and hands all others to the ASGI application."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from uvicorn.config import Config
from uvicorn.server import ServerState

from serving.gateway import sse
from serving.gateway.connections import MAX_HEADERS, Connection
from serving.gateway.hot import RARE_HEADERS, HotRequest, is_small
from serving.gateway.known_head import LENGTH, KnownHead

if TYPE_CHECKING:
    from serving.gateway.app import GatewayApp


class Early(NamedTuple):
    """A request whose known head came before its body."""

    hot: HotRequest
    known: KnownHead
    data: bytes
    """The head, which the parser has not seen."""


class HotConnection(Connection):
    """The ASGI scope of a request is made only when it is known to be needed."""

    _hot: HotRequest | None = None
    """The hot request whose body is being read."""
    _body = b""
    _early: Early | None = None
    _known: KnownHead | None = None
    _begun = 0
    """Messages that began on this connection."""
    _is_between = True
    """The parser is between two messages."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._routes = cast("GatewayApp", config.app).hot

    # ------------------------------------------------------------ the parser's side

    def on_message_begin(self) -> None:
        self._begun += 1
        self._is_between = False
        self._ticks, self._is_at_rest = 0, False  # a refusal in the same segment may have come to rest
        self.url = b""
        self.headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._hot = hot = self._recognised()
        if hot is None:
            self._begin_asgi()
            return
        self._head_bytes = 0
        self.cycle = hot  # type: ignore[assignment]
        self.on_lost = hot.lose

    def on_body(self, body: bytes) -> None:
        if self._hot is None:
            super().on_body(body)
        else:
            self._head_bytes = 0
            self._body = self._body + body if self._body else body

    def on_message_complete(self) -> None:
        self._is_between = True
        hot, self._hot = self._hot, None
        if hot is None:
            super().on_message_complete()
            return
        self._head_bytes = 0
        body, self._body = self._body, b""
        self._routes.hear(hot, body)

    def _recognised(self) -> HotRequest | None:
        """The request as a hot one, where it is one and nothing on this connection is open before it."""
        parser, headers, cycle = self.parser, self.headers, self.cycle
        route = self._routes.route(self.url)
        if route is None or parser.get_method() != b"POST" or parser.get_http_version() != "1.1":
            return None
        if (cycle is not None and not cycle.response_complete) or self.flow.write_paused:
            return None
        named = dict(headers)
        if len(named) != len(headers) or len(named) > MAX_HEADERS:
            return None
        if not RARE_HEADERS.isdisjoint(named) or sse.is_wanted(named):
            return None
        if not is_small(named.get(b"content-length")):
            return None
        return HotRequest(self._routes, self, route, named, parser.should_keep_alive())

    # ------------------------------------------------------------ heads that come again

    def data_received(self, data: bytes) -> None:
        if self._early is not None:
            self._rest_received(self._early, data)
            return
        known, corked, again = self._known, self.corked, None
        if known is not None and self._is_at_rest and self._is_between and not self.flow.write_paused:
            again = known.match(data)
        if known is None or again is None or corked.is_closing() or corked.is_lingering:
            super().data_received(data)
            return
        hot = HotRequest(self._routes, self, known.route, again.headers, True)
        if not again.is_whole and not self._routes.may_wait_again(hot, known):
            super().data_received(data)
            return
        self._ticks, self._is_at_rest = 0, False
        self.cycle, self.on_lost = hot, hot.lose  # type: ignore[assignment]
        if again.is_whole:
            self._routes.hear(hot, again.body, known)
            if hot.grant is not known.grant:  # the configuration has changed since
                self._known = self._routes.known_anew(hot, known)
        else:
            self._early = Early(hot, known, data)

    def _rest_received(self, early: Early, data: bytes) -> None:
        whole = early.data + data
        again = early.known.match(whole)
        if again is not None and again.is_whole:
            self._early = None
            self._routes.hear(early.hot, again.body, early.known)
        else:
            self._parse_early(data)

    def _parse_early(self, data: bytes = b"") -> None:
        """Something else follows than the whole body: let the parser see everything, as if it had not waited."""
        early, self._early = self._early, None
        if early is not None:
            self.cycle, self.on_lost = None, None  # type: ignore[assignment]
            super().data_received(early.data + data)

    def _remember(self, data: bytes) -> None:
        """`data` was exactly one message."""
        hot: object = self.cycle
        if isinstance(hot, HotRequest):
            size = int(hot.headers[LENGTH])
            self._known = self._routes.known(hot, data[: len(data) - size])

    # ------------------------------------------------------------ bodies that come later

    def _feed(self, data: bytes) -> None:
        begun, was_between = self._begun, self._is_between
        super()._feed(data)
        hot = self._hot
        if hot is not None and hot.grant is None and not self._routes.may_wait(hot):
            self._hand_over()  # refused now, though its body is still to come
        elif was_between and self._is_between and self._begun == begun + 1:
            self._remember(data)

    def shutdown(self) -> None:
        self._parse_early()
        super().shutdown()

    def tick(self) -> None:
        self._parse_early()
        if self._hot is not None:
            self._hand_over()
        super().tick()

    def _hand_over(self) -> None:
        """Let the ASGI application have a hot request that is not quite there: it knows how to wait."""
        hot, self._hot = self._hot, None
        body, self._body = self._body, b""
        self.cycle, self.on_lost = None, None  # type: ignore[assignment]
        if hot is None or self.corked.is_closing():
            return
        self.headers = list(hot.headers.items())
        self._begin_asgi()
        self.cycle.keep_alive = hot.keep_alive
        if body:
            super().on_body(body)

    def _begin_asgi(self) -> None:
        """The parser's callbacks so far, for uvicorn."""
        url, headers = self.url, self.headers
        super().on_message_begin()
        self.url = url
        for name, value in headers:
            super().on_header(name, value)
        super().on_headers_complete()

    # ------------------------------------------------------------ out

    def write_answer(self, hot: HotRequest, head: bytes, body: bytes) -> None:
        """A whole answer in one write; `head` ends with its last header line and is of our own making."""
        hot.response_complete = True
        self.on_lost = None
        if hot.disconnected:
            return
        tail = b"\r\n" if hot.keep_alive else b"connection: close\r\n\r\n"
        self.corked.write_whole(b"".join((head, tail, body)))
        if not hot.keep_alive:
            self.corked.close()

    def give_up(self, hot: HotRequest) -> None:
        """Nobody waits for this answer."""
        hot.response_complete = True
        self.on_lost = None
        if not hot.disconnected:
            self.corked.close()
