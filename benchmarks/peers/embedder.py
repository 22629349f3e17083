"""all-MiniLM-L6-v2 as the examples of every peer would serve it: padded batches through transformers."""

from __future__ import annotations

import os
from typing import Any

from benchmarks import machine, model


class Embedder:
    """Tokenises, runs, pools and normalises; pins its process to core $MODEL_CORE."""

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
            self.embed(["warm up with a sentence of some words"] * rows)
        machine.pin(core)  # threads that came since

    def embed(self, texts: list[str]) -> Any:
        """A float32 array of one row per text."""
        encoded = self._tokeniser.encode_batch(texts)
        torch = self._torch
        with torch.inference_mode():
            ids = torch.tensor([each.ids for each in encoded])
            mask = torch.tensor([each.attention_mask for each in encoded])
            states = self._model(input_ids=ids, attention_mask=mask).last_hidden_state
            weights = mask.unsqueeze(-1).to(states.dtype)
            pooled = (states * weights).sum(1) / weights.sum(1)
            return torch.nn.functional.normalize(pooled, dim=1).numpy()
