"""Streams of a worker that is a process of its own, as in production."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from serving.contract import DeploymentEntry, ReplicaSpec
from tests.serving.gateway.harness import Harness, echo_body, gateway
from tests.serving.gateway.test_streaming import Events, stream, values
from tests.serving.worker.test_process import WorkerProcess

pytestmark = pytest.mark.processes


async def test_a_stream_outlives_neither_its_worker_nor_its_client(tmp_path: Path) -> None:
    """100,000 parts a millisecond apart: whatever ends here ended before the engine was through."""
    body = echo_body(values(100_000))
    async with WorkerProcess(tmp_path, chunks=100_000, chunk_us=1000) as worker, gateway() as harness:
        await worker.until("ready")
        await _serve(harness, worker)

        async with stream(harness, body) as response:
            assert (await Events(response).next())["outputs"][0]["data"] == [0.0]
        assert (await harness.infer()).status_code == 200  # the device is free again

        async with stream(harness, body) as response:
            events = Events(response)
            await events.next()
            worker.process.send_signal(signal.SIGKILL)
            last = (await events.rest())[-1]
    assert last["code"] == "replica_lost"


async def test_a_draining_worker_finishes_its_streams(tmp_path: Path) -> None:
    async with WorkerProcess(tmp_path, chunks=300, chunk_us=1000) as worker, gateway() as harness:
        await worker.until("ready")
        await _serve(harness, worker)
        async with stream(harness, echo_body(values(300))) as response:
            events = Events(response)
            await events.next()
            worker.tell("drain")
            rest = await events.rest()
        assert len(rest) == 300
        assert rest[-1]["receipt"]["chunks"] == 300
        assert await worker.exit_status() == 0


async def _serve(harness: Harness, worker: WorkerProcess) -> None:
    harness.publish_model(version_id="mv_a")
    spec = ReplicaSpec(id="rep_a", version_id="mv_a", host="test", address=f"unix:{worker.path}")
    harness.seam.put("dep_echo", DeploymentEntry(id="dep_echo", model="echo", replicas=(spec,)))
    await harness.until_ready("mv_a")
