"""A worker as a process: what its agent and its gateways see of it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest
import redis.asyncio as redis

from serving.contract import ValidationReport, VersionEntry, decode_report, encode_body
from serving.telemetry.frames import FRAMES_CHANNEL, decode_frame
from tests.serving.worker.links import GatewayLink

pytestmark = pytest.mark.processes

PROJECT_DIR = Path(__file__).resolve().parents[3]
TIMEOUT_S = 30.0


class WorkerProcess:
    """A worker as the agent starts it: a spec file, a socket for control, nothing secret."""

    def __init__(self, directory: Path, *arguments: str, engine: str = "echo", **options: Any) -> None:
        self.path = directory / "w.sock"
        version = VersionEntry(
            id="mv_a",
            model="m",
            number=1,
            engine=engine,  # type: ignore[arg-type]
            artifact_sha256="",
            artifact_path=str(directory),
            options=options,
        )
        spec = {"replica_id": "rep_a", "epoch": 3, "address": f"unix:{self.path}", "attempt": 2}
        spec["version"] = json.loads(encode_body(version))
        (directory / "spec.json").write_text(json.dumps(spec))
        self._command = [sys.executable, "-m", "serving.worker", "--spec", str(directory / "spec.json")]
        self._command += arguments

    async def __aenter__(self) -> Self:
        ours, theirs = socket.socketpair()
        environ = {name: os.environ[name] for name in ("PATH", "VALKEY_URL")}
        environ["TIDEGATE_CONTROL_FD"] = str(theirs.fileno())
        self.process = subprocess.Popen(
            self._command, cwd=PROJECT_DIR, env=environ, pass_fds=[theirs.fileno()], stdout=subprocess.DEVNULL
        )
        theirs.close()
        self.reader, self.writer = await asyncio.open_connection(sock=ours)
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.writer.close()
        self.process.kill()
        self.process.wait()

    async def line(self) -> dict[str, Any]:
        return json.loads(await asyncio.wait_for(self.reader.readline(), TIMEOUT_S))

    async def until(self, state: str) -> dict[str, Any]:
        while (line := await self.line())["state"] != state:
            pass
        return line

    def tell(self, command: str) -> None:
        self.writer.write(json.dumps({"do": command}).encode() + b"\n")

    async def exit_status(self) -> int:
        return await asyncio.to_thread(self.process.wait, TIMEOUT_S)


async def test_it_reports_its_states_and_serves(tmp_path: Path) -> None:
    async with WorkerProcess(tmp_path) as worker:
        states = [await worker.line() for _ in range(3)]
        assert [line["state"] for line in states] == ["loading", "warming", "ready"]
        assert states[-1]["memory_bytes"] > 0
        assert states[-1]["load_s"] >= 0
        async with GatewayLink(str(worker.path)) as link:
            hello = await link.hello()
            assert (hello.replica_id, hello.version_id, hello.epoch) == ("rep_a", "mv_a", 3)
            await link.answer(link.infer(np.zeros((1, 2), np.float32)))


async def test_it_goes_on_saying_that_it_lives(tmp_path: Path) -> None:
    async with WorkerProcess(tmp_path) as worker:
        await worker.until("ready")
        assert await worker.line() == {"state": "ready", "is_beat": True}


async def test_the_echo_engine_needs_no_torch(tmp_path: Path) -> None:
    async with WorkerProcess(tmp_path) as worker:
        await worker.until("ready")
        maps = Path(f"/proc/{worker.process.pid}/maps").read_text()
        assert "libtorch" not in maps


@pytest.mark.parametrize("how", ["SIGTERM", "drain"])
async def test_a_drain_finishes_what_was_accepted(tmp_path: Path, how: str) -> None:
    async with WorkerProcess(tmp_path, sleep_us=100_000, max_batch_rows=1) as worker:
        await worker.until("ready")
        async with GatewayLink(str(worker.path)) as link:
            await link.hello()
            sent = [link.infer(np.zeros((1, 2), np.float32), max_batch_size=1) for _ in range(4)]
            await link.answer(sent[0])
            if how == "drain":
                worker.tell("drain")
            else:
                worker.process.send_signal(signal.SIGTERM)
            await worker.until("draining")
            assert not (await link.hello()).is_accepting
            for request_id in sent[1:]:
                await link.answer(request_id)
        assert await worker.exit_status() == 0


async def test_stop_ends_it_at_once(tmp_path: Path) -> None:
    async with WorkerProcess(tmp_path, sleep_us=60_000_000) as worker:
        await worker.until("ready")
        async with GatewayLink(str(worker.path)) as link:
            await link.hello()
            link.infer(np.zeros((1, 2), np.float32))
            worker.tell("stop")
            assert await worker.exit_status() == 0


async def test_it_does_not_outlive_its_agent(tmp_path: Path) -> None:
    async with WorkerProcess(tmp_path) as worker:
        await worker.until("ready")
        worker.writer.close()
        assert await worker.exit_status() == 1


async def test_a_version_that_cannot_load_says_why(tmp_path: Path) -> None:
    async with WorkerProcess(tmp_path, engine="python") as worker:
        assert "model.py" in (await worker.until("failed"))["reason"]
        assert await worker.exit_status() == 1


MODEL_ON_A_BROKEN_DEVICE = """
from serving.worker.engines.contract import DeviceLost

class Model:
    signature = {
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 1]}],
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 1]}],
    }

    def __init__(self, path, device, options): ...

    def predict(self, tensors):
        if tensors["x"].any():
            raise DeviceLost("an illegal memory access was encountered")
        return {"y": tensors["x"]}
"""


async def test_a_fatal_device_error_ends_the_process_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(MODEL_ON_A_BROKEN_DEVICE)
    async with WorkerProcess(tmp_path, engine="python") as worker:
        await worker.until("ready")
        async with GatewayLink(str(worker.path)) as link:
            await link.hello()
            await link.answer(link.infer(np.zeros((1, 1), np.float32)))
            link.infer(np.ones((1, 1), np.float32))
            assert "illegal memory access" in (await worker.until("failed"))["reason"]
            assert (await link.next())[1] == 0, "the link ends, so that the gateway tries elsewhere"
        assert await worker.exit_status() == 1


async def test_an_unusable_address_says_why(tmp_path: Path) -> None:
    worker = WorkerProcess(tmp_path)
    worker.path.mkdir()
    async with worker:
        assert "cannot listen" in (await worker.until("failed"))["reason"]


async def test_a_wrong_spec_says_why(tmp_path: Path) -> None:
    worker = WorkerProcess(tmp_path)
    (tmp_path / "spec.json").write_text("{}")
    async with worker:
        assert "version" in (await worker.line())["reason"]
        assert await worker.exit_status() == 2


async def test_validation_reports_and_exits(tmp_path: Path) -> None:
    async with WorkerProcess(tmp_path, "--validate") as worker:
        report = decode_report(json.dumps(await worker.line()))
        assert isinstance(report, ValidationReport)
        assert (report.ok, report.version_id, report.attempt) == (True, "mv_a", 2)
        assert report.cost is not None
        assert report.inputs[0].name == "x"
        assert await worker.exit_status() == 0


async def test_an_onnx_model_is_validated(tmp_path: Path) -> None:
    graphs = pytest.importorskip("tests.serving.worker.engines.graphs")
    graphs.scored(tmp_path)
    async with WorkerProcess(tmp_path, "--validate", engine="onnx") as worker:
        report = decode_report(json.dumps(await worker.line()))
        assert isinstance(report, ValidationReport)
        assert report.ok, report.reason
        assert [spec.name for spec in report.outputs] == ["scores", "total"]


async def test_a_failed_validation_has_a_reason(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert", "num_hidden_layers": 1}')
    async with WorkerProcess(tmp_path, "--validate", engine="encoder") as worker:
        line = await worker.line()
        assert line["ok"] is False
        assert "config.json lacks num_attention_heads" in line["reason"]
        assert await worker.exit_status() == 1


async def test_it_publishes_a_live_frame(tmp_path: Path, valkey_url: str) -> None:
    client = redis.Redis.from_url(valkey_url)
    async with client.pubsub() as channel, WorkerProcess(tmp_path) as worker:
        await channel.subscribe(FRAMES_CHANNEL)
        await worker.until("ready")
        async with asyncio.timeout(TIMEOUT_S):
            async for message in channel.listen():
                if message["type"] != "message":
                    continue
                frame = decode_frame(message["data"])
                if frame.process == "worker:rep_a":
                    break
    assert frame.replicas[0].model == "m"
    assert frame.replicas[0].epoch == 3
    await client.aclose()
