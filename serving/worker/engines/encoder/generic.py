"""Packed execution of any encoder whose attention goes through transformers' attention interface.

The model runs one long row [1, tokens] with explicit positions; its attention is replaced by one that lets
each token see the tokens of its own row only. Whether an architecture really works that way (no relative
positions, no convolution over neighbours, no mask of its own) is not believed but tried: `choosing` compares
with padded execution on random rows, and what differs is run padded.
"""

from __future__ import annotations

import inspect
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from serving.contract import TensorSpec
from serving.worker.engines.contract import Tensor
from serving.worker.engines.encoder import transformer
from serving.worker.engines.encoder.heads import EmbeddingHead, classification_outputs, classify
from serving.worker.engines.encoder.packing import Group, Packing, grid, pack, padded_tokens, short_rows
from serving.worker.engines.encoder.settings import EncoderSettings
from serving.worker.engines.encoder.transfer import transfer_for

ATTENTION = "tidegate_packed"
WARM_TOKENS = 512

_running: ContextVar[Packing] = ContextVar("packing")
"""Not a keyword argument: architectures pass those on unevenly."""


class Unsupported(Exception):
    """The architecture needs something that packed execution does not offer; the message names it."""


class GenericEncoder:
    """Takes over a loaded model. `position_offset` is the position of a row's first token."""

    can_yield = False

    def __init__(
        self, settings: EncoderSettings, model: Any, device: torch.device, position_offset: int
    ) -> None:
        self._settings = settings
        self._model = model
        self._base = model.base_model
        self._device = device
        self._transfer = transfer_for(device)
        self._offset = position_offset
        accepted = inspect.signature(self._base.forward).parameters
        self._takes_types = "token_type_ids" in accepted and hasattr(model.config, "type_vocab_size")
        self._embed = EmbeddingHead(
            transformer.hidden_size(model),
            settings.pooling,
            normalize=settings.normalize,
            transfer=self._transfer,
        )
        _register()
        model.set_attn_implementation(ATTENTION)

    @property
    def vocabulary(self) -> int:
        return int(self._model.get_input_embeddings().weight.shape[0])

    def outputs(self) -> tuple[TensorSpec, ...]:
        if self._settings.task == "classification":
            return classification_outputs(len(self._settings.labels))
        return self._embed.outputs()

    def executed_tokens(self, lengths: Sequence[int]) -> int:
        return padded_tokens(sum(lengths))

    def notes(self) -> tuple[str, ...]:
        kind = self._settings.model_type
        said = f"Packed through transformers' {kind}: equal to padded execution when it was loaded."
        return (said, *self._settings.notes())

    def run(
        self, ids: Sequence[np.ndarray], lengths: Sequence[int]
    ) -> Generator[None, None, dict[str, Tensor]]:
        yield from ()
        return self._forward(pack(ids, lengths))

    def warm_up(self) -> None:
        for tokens in grid(WARM_TOKENS):
            self._forward(pack([np.ones(tokens, np.int64)], short_rows(tokens)))

    @torch.inference_mode()
    def _forward(self, packing: Packing) -> dict[str, Tensor]:
        states = self._states(packing)
        if self._settings.task == "embedding":
            return self._embed(states, packing)
        return classify(self._logits(states, packing), self._settings.labels)

    def _states(self, packing: Packing) -> torch.Tensor:
        """[padded, hidden] of the packed rows."""
        ids, positions = self._transfer.to_device([packing.ids[None], packing.positions[None] + self._offset])
        named = {"position_ids": positions}
        if self._takes_types:
            named["token_type_ids"] = torch.zeros_like(ids)
        with _packed(packing):
            states: torch.Tensor = self._base(input_ids=ids, **named).last_hidden_state[0]
        return states

    def _logits(self, states: torch.Tensor, packing: Packing) -> np.ndarray:
        """The model's own head over its token states, laid out as it expects them: [rows, longest, hidden]."""
        lengths = packing.lengths
        cells = np.arange(lengths.max())[None] < lengths[:, None]
        mask = torch.from_numpy(cells).to(self._device)
        padded = states.new_zeros(*cells.shape, states.shape[-1])
        padded[mask] = states[: packing.tokens]
        logits = _head(self._model, padded, mask.long()).float().cpu().numpy()
        given = np.empty_like(logits)
        given[packing.order] = logits
        return given


def offsets(model: Any) -> list[int]:
    """Candidates for the position of a row's first token: 0, or behind the padding id as in RoBERTa."""
    padding = getattr(model.config, "pad_token_id", None)
    return [0] if padding is None else [0, int(padding) + 1]


# ---------------------------------------------------------------- the model's head


class _Given(torch.nn.Module):
    """Stands in for a base model whose states are already there."""

    def __init__(self, output: Any) -> None:
        super().__init__()
        self._output = output

    def forward(self, *args: Any, **named: Any) -> Any:
        return self._output


def _head(model: Any, states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    from transformers.modeling_outputs import BaseModelOutputWithPooling

    base = model.base_model
    pooler = getattr(base, "pooler", None)
    output = BaseModelOutputWithPooling(
        last_hidden_state=states, pooler_output=pooler(states) if pooler is not None else None
    )
    setattr(model, model.base_model_prefix, _Given(output))
    try:
        logits: torch.Tensor = model(input_ids=mask, attention_mask=mask).logits
    finally:
        setattr(model, model.base_model_prefix, base)
    return logits


# ---------------------------------------------------------------- attention


@contextmanager
def _packed(packing: Packing) -> Iterator[None]:
    token = _running.set(packing)
    try:
        yield
    finally:
        _running.reset(token)


def _register() -> None:
    from transformers import AttentionInterface

    # Without a mask function of that name, transformers builds no mask.
    AttentionInterface.register(ATTENTION, _attention)


def _attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    is_causal: bool | None = None,
    sliding_window: int | None = None,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """[1, heads, tokens, head size] each → [1, tokens, heads, head size], as transformers asks for.

    Raises `Unsupported` for a mask or an argument that would change the result.
    """
    _refuse(attention_mask, others)
    causal = bool(getattr(module, "is_causal", False) if is_causal is None else is_causal)
    grouped = query.shape[1] != key.shape[1]
    output = query.new_zeros(query.shape[2], query.shape[1], value.shape[-1])
    for group in _running.get().groups:
        span = slice(group.start, group.stop)
        q, k, v = (_block(each[0, :, span], group) for each in (query, key, value))
        mask = _window(sliding_window, group.length, query.device) if sliding_window else None
        if mask is not None and causal:
            raise Unsupported("a causal window")
        mixed = F.scaled_dot_product_attention(
            q, k, v, mask, is_causal=causal, scale=scaling, enable_gqa=grouped
        )
        output[span] = mixed.transpose(1, 2).flatten(0, 1)
    return output[None], None


def _block(heads: torch.Tensor, group: Group) -> torch.Tensor:
    """[heads, rows · length, head size] → [rows, heads, length, head size]."""
    return heads.view(heads.shape[0], group.rows, group.length, -1).transpose(0, 1)


_HARMLESS = {"dropout", "position_ids", "token_type_ids", "deterministic"}


def _refuse(attention_mask: torch.Tensor | None, others: dict[str, Any]) -> None:
    if attention_mask is not None:
        raise Unsupported("a mask of its own")
    for name, value in others.items():
        if name not in _HARMLESS and value not in (None, False):
            raise Unsupported(f"the attention argument {name}")


def _window(width: int, length: int, device: torch.device) -> torch.Tensor | None:
    """Which tokens see each other in a local layer: fewer than `width` apart, as transformers counts."""
    if length <= width:
        return None
    at = torch.arange(length, device=device)
    return (at[:, None] - at[None]).abs() < width
