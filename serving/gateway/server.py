"""uvicorn around one gateway: the listening socket, the limits, and the order of a graceful stop."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal
import socket
from collections.abc import Iterator

import structlog
import uvicorn

from serving.gateway.connections import Connection, tick_all
from serving.gateway.gateway import Gateway
from serving.gateway.hot_connection import HotConnection
from serving.settling import settle_memory

log = structlog.get_logger("tidegate.gateway.server")

GRACE_S = 30
BACKLOG = 2048
RESERVED_FILES = 256
"""Never given to clients: workers, PostgreSQL, Valkey and files are reached however many clients there are."""
GC_THRESHOLD = 20_000
"""Allocations between collections of the youngest objects; requests leave no cycles behind."""


def listen(host: str, port: int, *, is_shared: bool) -> socket.socket:
    """A listening socket; `is_shared` lets several gateways take connections of one port.

    Only then: two installations must not share a port unnoticed. Raises `OSError` when it is taken.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind((host, port))
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    sock.setblocking(False)
    return sock


class GatewayServer(uvicorn.Server):
    """Serves until SIGTERM, SIGINT or `should_exit`; then: refuse new, finish what is in flight, stop."""

    def __init__(self, gateway: Gateway) -> None:
        config = uvicorn.Config(
            gateway.app,
            http=HotConnection if gateway.has_hot_routes else Connection,
            ws="none",
            lifespan="off",
            loop="uvloop",
            interface="asgi3",
            log_config=None,
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_graceful_shutdown=GRACE_S,
        )
        super().__init__(config)
        self._gateway = gateway
        Connection.max_connections = max(1, _open_files_limit() - RESERVED_FILES)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """uvicorn raises the signal again when it is done; a graceful stop must exit with 0 instead."""
        loop = asyncio.get_running_loop()
        names: tuple[signal.Signals, ...] = (signal.SIGTERM, signal.SIGINT)
        try:
            for name in names:
                loop.add_signal_handler(name, self._stop)
        except (RuntimeError, ValueError):  # not the main thread: whoever runs us sets `should_exit`
            names = ()
        try:
            yield
        finally:
            for name in names:
                loop.remove_signal_handler(name)

    def _stop(self) -> None:
        self._gateway.drain()
        self.should_exit = True

    async def on_tick(self, counter: int) -> bool:
        if counter % 10 == 0:
            tick_all(self.server_state.connections)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._gateway.drain()
        await super().shutdown(sockets)


async def serve(gateway: Gateway, sock: socket.socket) -> None:
    """Start the gateway, serve on `sock` until told to stop, stop the gateway."""
    await gateway.start()
    settle_memory(GC_THRESHOLD)
    try:
        await GatewayServer(gateway).serve([sock])
    finally:
        await gateway.stop()
        log.info("gateway.stopped")


def _open_files_limit() -> int:
    """Raised to all this process may have: many systems start everything with 1024 of half a million."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return min(1 << 20, resource.getrlimit(resource.RLIMIT_NOFILE)[0] % (1 << 63))
