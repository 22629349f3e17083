"""mosec serving all-MiniLM-L6-v2 as its documentation would have it: dynamic batches of 32, 5 ms.

    python -m benchmarks.peers.mosec_server --port 8080 --timeout 30000

The worker pins itself to core $MODEL_CORE. JSON is done by orjson, which is faster than mosec's default.
"""

from __future__ import annotations

import os
from typing import Any

import orjson
from mosec import Server, Worker

from benchmarks import machine, model

MAX_BATCH, MAX_WAIT_MS = 32, 5


class Embedder(Worker):  # type: ignore[misc]
    """Padded batches through transformers, mean pooling, normalised."""

    def __init__(self) -> None:
        core = int(os.environ.get("MODEL_CORE", "1"))
        machine.pin(core)
        import torch
        from transformers import AutoModel

        torch.set_num_threads(1)
        self._torch = torch
        self._model = AutoModel.from_pretrained(model.directory(), add_pooling_layer=False).eval()
        self._tokeniser = model.tokeniser()
        self._tokeniser.enable_padding(pad_id=0, pad_token="[PAD]")
        for rows in (1, 2, 4, 8, 16, 32):
            self.forward([{"text": "warm up with a sentence of some words"}] * rows)
        machine.pin(core)

    def serialize(self, data: Any) -> bytes:
        return orjson.dumps(data, option=orjson.OPT_SERIALIZE_NUMPY)

    def deserialize(self, data: bytes) -> Any:
        return orjson.loads(data)

    def forward(self, data: list[dict[str, str]]) -> list[dict[str, Any]]:
        encoded = self._tokeniser.encode_batch([each["text"] for each in data])
        torch = self._torch
        with torch.inference_mode():
            ids = torch.tensor([each.ids for each in encoded])
            mask = torch.tensor([each.attention_mask for each in encoded])
            states = self._model(input_ids=ids, attention_mask=mask).last_hidden_state
            weights = mask.unsqueeze(-1).to(states.dtype)
            pooled = (states * weights).sum(1) / weights.sum(1)
            vectors = torch.nn.functional.normalize(pooled, dim=1).numpy()
        return [{"embedding": vector} for vector in vectors]


if __name__ == "__main__":
    server = Server()
    server.append_worker(Embedder, num=1, max_batch_size=MAX_BATCH, max_wait_time=MAX_WAIT_MS)
    server.run()
