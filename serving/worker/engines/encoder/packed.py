"""Packed execution of BERT-family encoders: no padding, fused projections, a pause between layers."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from serving.contract import TensorSpec
from serving.worker.engines.contract import Tensor
from serving.worker.engines.encoder.architectures import Architecture
from serving.worker.engines.encoder.attention import attend
from serving.worker.engines.encoder.heads import ClassificationHead, EmbeddingHead, Head
from serving.worker.engines.encoder.linear import Linear, linear
from serving.worker.engines.encoder.packing import ALIGNMENT, Packing, pack, padded_tokens
from serving.worker.engines.encoder.settings import EncoderSettings
from serving.worker.engines.encoder.weights import Weights
from serving.worker.engines.torch_device import DTYPES

WARM_TOKENS = 640
"""Batches up to this size run shapes that were seen during warm-up."""

Norm = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Layer:
    qkv: Linear
    attention_out: Linear
    attention_norm: Norm
    up: Linear
    down: Linear
    output_norm: Norm


class PackedEncoder:
    """Loads on creation. Raises `LoadFailed` when the weights do not fit the architecture."""

    def __init__(self, settings: EncoderSettings, shape: Architecture, device: torch.device) -> None:
        self._shape = shape
        self._device = device
        weights = Weights(settings.path, shape.names.prefix, DTYPES[settings.dtype], device)
        with torch.inference_mode():
            self._words = weights.take("embeddings.word_embeddings.weight")
            self._positions = self._position_table(weights)
            self._embedding_norm = weights.pair("embeddings.LayerNorm")
            self._layers = [self._layer(weights, index) for index in range(shape.layers)]
            self._head = self._make_head(weights, settings)
        # A CUDA layer is only enqueued when the host comes back: pausing there would pause nothing.
        self.can_yield = device.type == "cpu"

    @property
    def vocabulary(self) -> int:
        return self._words.shape[0]

    def outputs(self) -> tuple[TensorSpec, ...]:
        return self._head.outputs()

    def executed_tokens(self, lengths: Sequence[int]) -> int:
        return padded_tokens(sum(lengths))

    def notes(self) -> tuple[str, ...]:
        return ("Packed: rows run behind each other, without padding.",)

    def run(
        self, ids: Sequence[np.ndarray], lengths: Sequence[int]
    ) -> Generator[None, None, dict[str, Tensor]]:
        packing = pack(ids, lengths)
        states = self._embed(packing)
        for index, layer in enumerate(self._layers):
            if index and self.can_yield:
                yield
            states = self._advance(layer, states, packing)
        return self._finish(states, packing)

    def warm_up(self) -> None:
        """One layer for every number of tokens: all layers run the same shapes."""
        for tokens in range(ALIGNMENT, WARM_TOKENS + 1, ALIGNMENT):
            packing = pack([np.ones(tokens, np.int64)], [ALIGNMENT] * (tokens // ALIGNMENT))
            self._finish(self._advance(self._layers[0], self._embed(packing), packing), packing)

    @torch.inference_mode()
    def _embed(self, packing: Packing) -> torch.Tensor:
        ids = torch.from_numpy(packing.ids).to(self._device)
        positions = torch.from_numpy(packing.positions).to(self._device)
        states = F.embedding(ids, self._words) + F.embedding(positions, self._positions)
        return self._normalized(states, self._embedding_norm)

    @torch.inference_mode()
    def _advance(self, layer: Layer, states: torch.Tensor, packing: Packing) -> torch.Tensor:
        shape = self._shape
        mixed = attend(layer.qkv(states), packing.groups, shape.heads, shape.head_size)
        states = self._normalized(layer.attention_out.plus(mixed, states), layer.attention_norm)
        return self._normalized(layer.down.plus(layer.up.gelu(states), states), layer.output_norm)

    @torch.inference_mode()
    def _finish(self, states: torch.Tensor, packing: Packing) -> dict[str, Tensor]:
        return self._head(states, packing)

    def _normalized(self, states: torch.Tensor, norm: Norm) -> torch.Tensor:
        return F.layer_norm(states, (self._shape.hidden,), *norm, self._shape.norm_epsilon)

    # ------------------------------------------------------------ loading

    def _position_table(self, weights: Weights) -> torch.Tensor:
        """Positions of a row from 0, with the only token type added once and for all."""
        table = weights.take("embeddings.position_embeddings.weight")[self._shape.position_offset :]
        if self._shape.names.has_token_types:
            table = table + weights.take("embeddings.token_type_embeddings.weight")[0]
        return table.contiguous()

    def _layer(self, weights: Weights, index: int) -> Layer:
        names, prefix = self._shape.names, self._shape.names.layer.format(index)
        projections = [weights.pair(prefix + name) for name in (names.query, names.key, names.value)]
        fused = (
            torch.cat([weight for weight, _ in projections]),
            torch.cat([bias for _, bias in projections]),
        )
        return Layer(
            qkv=linear(*fused),
            attention_out=linear(*weights.pair(prefix + names.attention_out)),
            attention_norm=weights.pair(prefix + names.attention_norm),
            up=linear(*weights.pair(prefix + names.up), gelu=self._shape.gelu),
            down=linear(*weights.pair(prefix + names.down)),
            output_norm=weights.pair(prefix + names.output_norm),
        )

    def _make_head(self, weights: Weights, settings: EncoderSettings) -> Head:
        if settings.task == "embedding":
            return EmbeddingHead(self._shape.hidden, settings.pooling, normalize=settings.normalize)
        first, second = self._shape.names.classifier
        activation = torch.tanh if self._shape.names.classifier_activation == "tanh" else torch.relu
        return ClassificationHead(weights.pair(first), weights.pair(second), activation, settings.labels)
