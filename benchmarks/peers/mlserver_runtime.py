"""MLServer: a custom runtime; `known.py` writes the settings that name it."""

from __future__ import annotations

from mlserver import MLModel
from mlserver.codecs import NumpyCodec, StringCodec
from mlserver.types import InferenceRequest, InferenceResponse

from benchmarks.peers.embedder import Embedder


class Embedding(MLModel):  # type: ignore[misc]
    async def load(self) -> bool:
        self._embedder = Embedder()
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        vectors = self._embedder.embed(StringCodec.decode_input(payload.inputs[0]))
        return InferenceResponse(
            model_name=self.name, outputs=[NumpyCodec.encode_output("embedding", vectors)]
        )
