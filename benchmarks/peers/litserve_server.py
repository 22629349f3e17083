"""LitServe: `python -m benchmarks.peers.litserve_server 8080`."""

from __future__ import annotations

import sys
from typing import Any

import litserve

from benchmarks.peers.embedder import Embedder
from benchmarks.peers.peer import MAX_BATCH, MAX_WAIT_MS


class Embedding(litserve.LitAPI):  # type: ignore[misc]
    def setup(self, device: str) -> None:
        self._embedder = Embedder()

    def decode_request(self, request: dict[str, str]) -> str:
        return request["text"]

    def batch(self, inputs: Any) -> list[str]:
        return list(inputs)

    def predict(self, x: list[str]) -> Any:
        return self._embedder.embed(x)

    def unbatch(self, output: Any) -> Any:
        return output.tolist()

    def encode_response(self, output: list[float]) -> dict[str, list[float]]:
        return {"embedding": output}


if __name__ == "__main__":
    api = Embedding(max_batch_size=MAX_BATCH, batch_timeout=MAX_WAIT_MS / 1e3)
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=1, timeout=30, fast_queue=True)
    server.run(
        host="127.0.0.1",
        port=int(sys.argv[1]),
        num_api_servers=1,
        generate_client_file=False,
        log_level="warning",
    )
