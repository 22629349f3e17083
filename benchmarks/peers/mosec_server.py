"""mosec: `python -m benchmarks.peers.mosec_server --port 8080 --timeout 30000`.

JSON is done by orjson, which is faster than mosec's default.
"""

from __future__ import annotations

from typing import Any

import orjson
from mosec import Server, Worker

from benchmarks.peers.embedder import Embedder
from benchmarks.peers.peer import MAX_BATCH, MAX_WAIT_MS


class Embedding(Worker):  # type: ignore[misc]
    def __init__(self) -> None:
        self._embedder = Embedder()

    def serialize(self, data: Any) -> bytes:
        return orjson.dumps(data, option=orjson.OPT_SERIALIZE_NUMPY)

    def deserialize(self, data: bytes) -> Any:
        return orjson.loads(data)

    def forward(self, data: list[dict[str, str]]) -> list[dict[str, Any]]:
        return [{"embedding": vector} for vector in self._embedder.embed([each["text"] for each in data])]


if __name__ == "__main__":
    server = Server()
    server.append_worker(Embedding, num=1, max_batch_size=MAX_BATCH, max_wait_time=MAX_WAIT_MS)
    server.run()
