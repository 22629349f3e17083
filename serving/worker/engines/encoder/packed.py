"""Packed execution of BERT-family encoders: no padding, fused projections, three pauses in a layer."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import structlog
import torch

from serving.contract import TensorSpec
from serving.worker.engines.contract import Tensor
from serving.worker.engines.encoder.architectures import Architecture
from serving.worker.engines.encoder.attention import attend as attend_grouped
from serving.worker.engines.encoder.attention import attend_masked, attend_variable, can_vary
from serving.worker.engines.encoder.fixed import SIZES as FIXED_SIZES
from serving.worker.engines.encoder.fixed import (
    CudaRecorder,
    FixedForwards,
    FixedInputs,
    Record,
    boundaries,
)
from serving.worker.engines.encoder.heads import ClassificationHead, EmbeddingHead, Head
from serving.worker.engines.encoder.linear import Linear, linear
from serving.worker.engines.encoder.packing import (
    Packing,
    first_tokens,
    grid,
    pack,
    padded_tokens,
    short_rows,
)
from serving.worker.engines.encoder.settings import EncoderSettings
from serving.worker.engines.encoder.tiled import attend_tiled, can_tile, pieces
from serving.worker.engines.encoder.transfer import transfer_for
from serving.worker.engines.encoder.weights import Weights
from serving.worker.engines.torch_device import DTYPES

log = structlog.get_logger(__name__)

WARM_TOKENS = 1024
"""Batches up to this size run shapes that were seen during warm-up. A new shape costs 5 to 10 ms: beyond
this size, where the grid is coarse, that is a few percent of one batch."""
WARM_S = 10.0
"""A large model warms up its small sizes only, in this time."""

Attend = Callable[[torch.Tensor], torch.Tensor]
"""[padded, 3·hidden] → [padded, hidden], for the rows of one batch."""

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
        self._settings = settings
        self._shape = shape
        self._device = device
        self._dtype = DTYPES[settings.dtype]
        self._transfer = transfer_for(device)
        weights = Weights(settings.path, shape.names.prefix, self._dtype, device)
        with torch.inference_mode():
            self._words = weights.take("embeddings.word_embeddings.weight")
            self._positions = self._position_table(weights)
            self._embedding_norm = weights.pair("embeddings.LayerNorm")
            self._layers = [self._layer(weights, index, settings.quantize) for index in range(shape.layers)]
            self._head = self._make_head(weights, settings)
        self._fixed: FixedForwards | None = None
        # A CUDA layer is only enqueued when the host comes back: pausing there would pause nothing.
        self.can_yield = device.type == "cpu"
        self._attends_in_tiles = can_tile(device, self._dtype)

    @property
    def vocabulary(self) -> int:
        return self._words.shape[0]

    def outputs(self) -> tuple[TensorSpec, ...]:
        return self._head.outputs()

    def executed_tokens(self, lengths: Sequence[int]) -> int:
        tokens = sum(lengths)
        return self._fixed_size(tokens) or padded_tokens(tokens)

    def notes(self) -> tuple[str, ...]:
        settings = self._settings
        said = [f"Packed: rows of {settings.model_type} run behind each other, without padding."]
        said += settings.notes()
        if self._fixed is not None:
            said.append("Small batches replay CUDA graphs.")
        return tuple(said)

    def run(
        self, ids: Sequence[np.ndarray], lengths: Sequence[int]
    ) -> Generator[None, None, dict[str, Tensor]]:
        size = self._fixed_size(sum(lengths))
        packing = pack(ids, lengths, size)
        # Entered once a batch, since entering costs as much as an operator. It belongs to the thread: whoever
        # runs another batch in a pause runs it to its end.
        with torch.inference_mode():
            if size is not None:
                return self._finish(self._replay(packing), packing)
            outputs = yield from self._through(packing)
            if packing.has_neighbours and self._attends_in_tiles and not _is_finite(outputs):
                outputs = yield from self._through(packing, apart=True)
        return outputs

    def _through(self, packing: Packing, *, apart: bool = False) -> Generator[None, None, dict[str, Tensor]]:
        """All layers. `apart`: no row is near another one, whose numbers may not be finite."""
        states, attend = self._begin(packing, apart=apart)
        last = len(self._layers) - 1
        for index, layer in enumerate(self._layers):
            # Attention and each half of the feed-forward block cost about the same.
            if index and self.can_yield:
                yield
            if index == last and self._head.reads_first_tokens:
                states, packing = self._attend_first(layer, states, attend, packing)
            else:
                states = self._attend(layer, states, attend)
            if self.can_yield:
                yield
            wide = self._widen(layer, states)
            if self.can_yield:
                yield
            states = self._narrow(layer, wide, states)
        return self._finish(states, packing)

    @torch.inference_mode()
    def warm_up(self) -> None:
        """One layer for every padded number of tokens: all layers run the same shapes."""
        began = time.perf_counter()
        sizes = grid(WARM_TOKENS)
        for tokens in sizes:
            if time.perf_counter() - began > WARM_S:
                log.warning("encoder.warm_up_cut", warm_tokens=tokens, wanted_tokens=sizes[-1])
                break
            packing = pack([np.ones(tokens, np.int64)], short_rows(tokens))
            states, attend = self._begin(packing)
            self._finish(self._advance(self._layers[0], states, attend), packing)
        if self._device.type == "cuda" and self._settings.cuda_graphs:
            self.record(CudaRecorder())
        log.info("encoder.warm", tokens=tokens, took_s=round(time.perf_counter() - began, 2))

    def record(self, record: Record) -> None:
        """From now on batches of few tokens replay recorded forwards, unless this device cannot."""
        fixed = FixedForwards(self._forward_fixed, record, self._device)
        try:
            with torch.inference_mode():
                for tokens in FIXED_SIZES:
                    fixed.record(tokens)
        except RuntimeError as error:
            log.warning("encoder.no_graphs", reason=str(error)[:200])
            return
        self._fixed = fixed

    # ------------------------------------------------------------ computing

    def _begin(self, packing: Packing, *, apart: bool = False) -> tuple[torch.Tensor, Attend]:
        shape = self._shape
        arrays = [packing.ids, packing.positions]
        if not can_vary(self._device, self._dtype):
            ids, positions = self._transfer.to_device(arrays)
            return self._embed(ids, positions), self._attend_blocks(packing, apart=apart)
        ends = boundaries(packing)[: packing.rows + 2]
        ids, positions, edges = self._transfer.to_device([*arrays, ends])
        longest = int(np.diff(ends).max())
        return self._embed(ids, positions), partial(
            attend_variable,
            boundaries=edges,
            longest=longest,
            heads=shape.heads,
            head_size=shape.head_size,
        )

    def _attend_blocks(self, packing: Packing, *, apart: bool) -> Attend:
        heads, head_size = self._shape.heads, self._shape.head_size
        if apart or not self._attends_in_tiles:
            return partial(attend_grouped, groups=packing.groups, heads=heads, head_size=head_size)
        tiled = pieces(packing.groups, packing.padded)
        return partial(attend_tiled, pieces=tiled, heads=heads, head_size=head_size)

    def _embed(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        states = self._words.index_select(0, ids) + self._positions.index_select(0, positions)
        return self._normalized(states, self._embedding_norm)

    def _advance(self, layer: Layer, states: torch.Tensor, attend: Attend) -> torch.Tensor:
        states = self._attend(layer, states, attend)
        return self._narrow(layer, self._widen(layer, states), states)

    def _attend(self, layer: Layer, states: torch.Tensor, attend: Attend) -> torch.Tensor:
        mixed = attend(layer.qkv(states))
        return self._normalized(layer.attention_out.plus(mixed, states), layer.attention_norm)

    def _attend_first(
        self, layer: Layer, states: torch.Tensor, attend: Attend, packing: Packing
    ) -> tuple[torch.Tensor, Packing]:
        """The last layer for a head that reads first tokens: all are attended to, no others go on."""
        indices, alone = first_tokens(packing)
        (first,) = self._transfer.to_device([indices])
        mixed = attend(layer.qkv(states))[first]
        return self._normalized(layer.attention_out.plus(mixed, states[first]), layer.attention_norm), alone

    def _widen(self, layer: Layer, states: torch.Tensor) -> torch.Tensor:
        return layer.up.gelu(states)

    def _narrow(self, layer: Layer, wide: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        return self._normalized(layer.down.plus(wide, states), layer.output_norm)

    def _finish(self, states: torch.Tensor, packing: Packing) -> dict[str, Tensor]:
        return self._head(states, packing)

    def _normalized(self, states: torch.Tensor, norm: Norm) -> torch.Tensor:
        # Not through torch.nn.functional, whose checks a lone sentence would notice.
        return torch.layer_norm(states, (self._shape.hidden,), *norm, self._shape.norm_epsilon)

    # ------------------------------------------------------------ recorded forwards

    def _fixed_size(self, tokens: int) -> int | None:
        return None if self._fixed is None else self._fixed.size_for(tokens)

    def _replay(self, packing: Packing) -> torch.Tensor:
        assert self._fixed is not None
        return self._fixed.run(packing)

    def _forward_fixed(self, inputs: FixedInputs) -> torch.Tensor:
        shape = self._shape
        attend: Attend
        if can_vary(self._device, self._dtype):
            attend = partial(
                attend_variable,
                boundaries=inputs.boundaries,
                longest=len(inputs.ids),
                heads=shape.heads,
                head_size=shape.head_size,
            )
        else:
            attend = partial(
                attend_masked, row_of=inputs.row_of, heads=shape.heads, head_size=shape.head_size
            )
        states = self._embed(inputs.ids, inputs.positions)
        for layer in self._layers:
            states = self._advance(layer, states, attend)
        return states

    # ------------------------------------------------------------ loading

    def _position_table(self, weights: Weights) -> torch.Tensor:
        """Positions of a row from 0, with the only token type added once and for all."""
        table = weights.take("embeddings.position_embeddings.weight")[self._shape.position_offset :]
        if self._shape.names.has_token_types:
            table = table + weights.take("embeddings.token_type_embeddings.weight")[0]
        return table.contiguous()

    def _layer(self, weights: Weights, index: int, quantize: str) -> Layer:
        names, prefix = self._shape.names, self._shape.names.layer.format(index)
        projections = [weights.pair(prefix + name) for name in (names.query, names.key, names.value)]
        fused = (
            torch.cat([weight for weight, _ in projections]),
            torch.cat([bias for _, bias in projections]),
        )
        return Layer(
            qkv=linear(*fused, quantize=quantize),
            attention_out=linear(*weights.pair(prefix + names.attention_out), quantize=quantize),
            attention_norm=weights.pair(prefix + names.attention_norm),
            up=linear(*weights.pair(prefix + names.up), gelu=self._shape.gelu, quantize=quantize),
            down=linear(*weights.pair(prefix + names.down), quantize=quantize),
            output_norm=weights.pair(prefix + names.output_norm),
        )

    def _make_head(self, weights: Weights, settings: EncoderSettings) -> Head:
        if settings.task == "embedding":
            return EmbeddingHead(
                self._shape.hidden,
                settings.pooling,
                normalize=settings.normalize,
                transfer=self._transfer,
            )
        first, second = self._shape.names.classifier
        activation = torch.tanh if self._shape.names.classifier_activation == "tanh" else torch.relu
        pairs = weights.pair(first), weights.pair(second)
        return ClassificationHead(*pairs, activation, settings.labels, self._transfer)


def _is_finite(outputs: dict[str, Tensor]) -> bool:
    """By one sum each: what overflows only there is run a second time for nothing, and answered the same."""
    return all(math.isfinite(array.sum()) for kind, array in outputs.values() if kind == "FP32")
