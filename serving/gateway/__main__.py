"""`python -m serving.gateway`: one gateway process, configured by the environment.

`TIDEGATE_GATEWAY_INDEX` (from 0) and `TIDEGATE_GATEWAY_COUNT` number the processes that share one port.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

import structlog
import uvloop

from serving import logs, runtime
from serving.gateway.gateway import Gateway, GatewaySettings
from serving.gateway.server import listen, serve
from serving.parenting import die_with_parent
from serving.runtime import Runtime
from serving.seam.postgres import PostgresSeam
from serving.telemetry.tracing import Tracing, from_environment

log = structlog.get_logger("tidegate.gateway")

CANNOT_START = 2


def main() -> int:
    """The exit status: 0 after a graceful stop, 2 for a setting that cannot work."""
    die_with_parent()
    logs.configure({})
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        process = runtime.read()
        index, count = _place(os.environ)
        settings = _settings(process, index, count)
        tracing = from_environment("tidegate-gateway", settings.name)
        if not process.database_url:
            raise ValueError("DATABASE_URL is not set (it may be unreachable, but must be named)")
    except ValueError as error:
        log.error("gateway.cannot_start", reason=str(error))
        return CANNOT_START
    try:
        sock = listen(process.gateway_host, process.gateway_port, is_shared=count > 1)
    except OSError as error:
        address = f"{process.gateway_host}:{process.gateway_port}"
        log.error(
            "gateway.cannot_listen", address=address, setting="TIDEGATE_GATEWAY_PORT", reason=str(error)
        )
        return CANNOT_START
    uvloop.run(_run(process.database_url, settings, tracing, sock))
    if tracing is not None:
        tracing.close()
    return 0


async def _run(
    database_url: str, settings: GatewaySettings, tracing: Tracing | None, sock: socket.socket
) -> None:
    gateway = Gateway(PostgresSeam(database_url, name=settings.name), settings, tracing)
    log.info("gateway.serving", name=settings.name, port=sock.getsockname()[1], share_of=settings.count)
    await serve(gateway, sock)


def _place(environ: Mapping[str, str]) -> tuple[int, int]:
    """This gateway's index and how many there are. Raises `ValueError`."""
    index = int(environ.get("TIDEGATE_GATEWAY_INDEX") or 0)
    count = int(environ.get("TIDEGATE_GATEWAY_COUNT") or 1)
    if not 0 <= index < count:
        raise ValueError(f"TIDEGATE_GATEWAY_INDEX {index} is not below TIDEGATE_GATEWAY_COUNT {count}")
    return index, count


def _settings(process: Runtime, index: int, count: int) -> GatewaySettings:
    return GatewaySettings(
        name=f"gateway:{process.host}:{index}",
        state_dir=_state_dir(process.state_dir, index),
        key_pepper=process.key_pepper,
        trusted_proxies=process.trusted_proxies,
        valkey_url=process.valkey_url,
        poll_interval_s=process.poll_interval_s,
        max_body_bytes=process.max_body_bytes,
        idempotency_bytes=process.idempotency_bytes,
        quotas_fail_open=process.quotas_fail_open,
        count=count,
        has_hot_routes=process.has_hot_routes,
    )


def _state_dir(state_dir: Path, index: int) -> Path:
    """`gateway/` for the first, `gateway-N/` for the others; private, since it holds key digests."""
    path = state_dir / ("gateway" if index == 0 else f"gateway-{index}")
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


if __name__ == "__main__":
    sys.exit(main())
