"""Gateways that are processes of their own and share one port, as `up --gateways 2` starts them."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import httpx
import pytest

from serving.contract import UsageReport
from serving.gateway.usage import Usage
from serving.seam.memory import MemorySeam
from serving.seam.outbox import ReportOutbox
from serving.worker.testing import EchoWorker
from tests.serving.gateway.harness import PATIENCE_S, Harness, echo_body, gateway
from tests.serving.gateway.processes import gateway_process, write_configuration
from tests.serving.gateway.test_starting_and_stopping import free_port

pytestmark = pytest.mark.processes

CONNECTIONS = 40
"""New ones, dealt out by the kernel: that one gateway gets none of them is one chance in 10^12."""


async def test_two_share_a_port_and_when_one_is_killed_the_other_serves_and_no_usage_is_lost(
    tmp_path: Path,
) -> None:
    async with gateway(is_started=False) as harness:
        harness.publish_model()
        harness.publish_replicas(harness.address())
        async with EchoWorker(harness.address(), replica_id="rep_0"):
            await write_configuration(harness, tmp_path, 2)
            port = free_port()
            async with (
                gateway_process(tmp_path, port, 0, 2) as first,
                gateway_process(tmp_path, port, 1, 2) as second,
            ):
                await _until_ready(harness, port)
                assert await _ask(harness, port) == [200] * CONNECTIONS
                first.kill()
                await first.wait()
                assert await _ask(harness, port) == [200] * CONNECTIONS
                second.send_signal(signal.SIGTERM)
                assert await second.wait() == 0
    counted = [await _usage_found(tmp_path / name) for name in ("gateway", "gateway-1")]
    assert min(counted) > 0 and sum(counted) == 2 * CONNECTIONS


async def _until_ready(harness: Harness, port: str) -> None:
    """Every one of many new connections finds a gateway that is ready and has its replica."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if set(await _ask(harness, port, "GET", "ready")) == {200}:
                return


async def _ask(harness: Harness, port: str, method: str = "POST", what: str = "infer") -> list[int]:
    """One request on each of many new connections."""
    statuses = []
    for _ in range(CONNECTIONS):
        async with httpx.AsyncClient(timeout=PATIENCE_S, verify=False) as client:
            url = f"http://127.0.0.1:{port}/v2/models/echo/{what}"
            answer = await client.request(method, url, json=echo_body(), headers=harness.auth)
            statuses.append(answer.status_code)
    return statuses


async def _usage_found(directory: Path) -> int:
    """Requests that the next start on this directory reports."""
    seam = MemorySeam()
    outbox = ReportOutbox(seam, "gateway", directory / "reports.jsonl")
    await outbox.start(Usage(outbox, directory).recover())
    await outbox.stop()
    return sum(row.requests for body in seam.received() if isinstance(body, UsageReport) for row in body.rows)
