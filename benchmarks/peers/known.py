"""The peers that can be measured, by name."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.peers.peer import MAX_BATCH, MAX_WAIT_MS, Peer


def _mosec(programs: Path, port: int, directory: Path) -> list[str]:
    arguments = ("--address", "127.0.0.1", "--port", str(port), "--timeout", "30000", "--capacity", "4096")
    return [str(programs / "python"), "-m", "benchmarks.peers.mosec_server", *arguments]


def _litserve(programs: Path, port: int, directory: Path) -> list[str]:
    return [str(programs / "python"), "-m", "benchmarks.peers.litserve_server", str(port)]


def _mlserver(programs: Path, port: int, directory: Path) -> list[str]:
    settings = {
        "name": "embed",
        "implementation": "benchmarks.peers.mlserver_runtime.Embedding",
        "max_batch_size": MAX_BATCH,
        "max_batch_time": MAX_WAIT_MS / 1e3,
    }
    (directory / "model-settings.json").write_text(json.dumps(settings))
    return [str(programs / "python"), str(programs / "mlserver"), "start", str(directory)]


def _mlserver_environment(port: int) -> dict[str, str]:
    """One model process, as the others have."""
    return {
        "MLSERVER_HOST": "127.0.0.1",
        "MLSERVER_HTTP_PORT": str(port),
        "MLSERVER_GRPC_PORT": str(port + 1),
        "MLSERVER_METRICS_PORT": str(port + 2),
        "MLSERVER_PARALLEL_WORKERS": "1",
        "MLSERVER_DEBUG": "false",
    }


PEERS = {
    peer.name: peer
    for peer in (
        Peer("mosec", "0.9.8", "/inference", '{"text": %s}', _mosec),
        Peer(
            "mlserver",
            "1.7.1",
            "/v2/models/embed/infer",
            '{"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": [%s]}]}',
            _mlserver,
            also=("uvloop<0.22",),  # what it uses of uvloop is gone since
            environment=_mlserver_environment,
        ),
        Peer("litserve", "0.2.19", "/predict", '{"text": %s}', _litserve),
    )
}
