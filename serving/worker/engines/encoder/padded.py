"""Any transformers encoder through its own classes, in rectangles of rows of similar length."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
import structlog
import torch
import torch.nn.functional as F

from serving.contract import TensorSpec
from serving.worker.engines.contract import Tensor
from serving.worker.engines.encoder import transformer
from serving.worker.engines.encoder.heads import classification_outputs, classify, embedding_outputs
from serving.worker.engines.encoder.rectangles import Rectangle, cut, cut_exactly, filled
from serving.worker.engines.encoder.settings import EncoderSettings
from serving.worker.engines.encoder.transfer import Fetch, transfer_for

log = structlog.get_logger(__name__)

_COMPILED_SHAPES = ((2, 8), (3, 16), (5, 24))
"""Enough for the compiler to see that rows and length are free."""
_WARM_CELLS = 512
_WARM_STEP = 8
_WARM_S = 10.0


class PaddedEncoder:
    """Takes over a loaded model; `reason` says why its rows are padded.

    `is_exact`: rows of different lengths never run together, because padding would change the results.
    """

    # Pauses come between rectangles, whose sizes differ too much for the scheduler to count on them.
    can_yield = False

    def __init__(
        self,
        settings: EncoderSettings,
        model: Any,
        device: torch.device,
        reason: str,
        *,
        is_exact: bool = False,
    ) -> None:
        self._is_exact = is_exact
        self._settings = settings
        self._device = device
        self._transfer = transfer_for(device)
        self._model = model
        self._reason = reason
        self._padding_id = int(settings.config.get("pad_token_id") or 0)
        # One compilation for all shapes: each one costs tens of seconds on a CPU. One row would be a shape of
        # its own for the compiler, so compiled rectangles have two rows or more.
        self._least_rows = 2 if settings.compile else 1
        self._compiled: Any = _compiled(model, device) if settings.compile else model

    @property
    def vocabulary(self) -> int:
        return int(self._model.get_input_embeddings().weight.shape[0])

    def outputs(self) -> tuple[TensorSpec, ...]:
        if self._settings.task == "classification":
            return classification_outputs(len(self._settings.labels))
        return embedding_outputs(transformer.hidden_size(self._model))

    def executed_tokens(self, lengths: Sequence[int]) -> int:
        cut = self._cut(lengths)
        return sum(max(self._least_rows, len(each.rows)) * each.length for each in cut)

    def notes(self) -> tuple[str, ...]:
        how = "In rectangles of equal lengths, as padding changes its results"
        if not self._is_exact:
            how = "Padded, in rectangles of similar lengths"
        return (f"{how}: {self._reason}.", *self._settings.notes())

    def warm_up(self) -> None:
        """Matrices differ by their number of cells only; attention by its length."""
        if self._settings.compile:
            for rows, length in _COMPILED_SHAPES:
                self._forward(np.ones((rows, length), np.int64), np.ones((rows, length), np.int64))
        began = time.perf_counter()
        longest = self._cut([self._settings.max_tokens])[0].length
        least = self._least_rows
        shapes = [(rows, _WARM_STEP) for rows in range(least, _WARM_CELLS // _WARM_STEP + 1)]
        shapes += [
            (rows, length) for length in (64, 256, longest) if length <= longest for rows in (least, 2)
        ]
        for rows, length in shapes:
            if time.perf_counter() - began > _WARM_S:
                log.warning("encoder.warm_up_cut", rows=rows, length=length)
                return
            self._forward(np.ones((rows, length), np.int64), np.ones((rows, length), np.int64))

    def run(
        self, ids: Sequence[np.ndarray], lengths: Sequence[int]
    ) -> Generator[None, None, dict[str, Tensor]]:
        given = np.concatenate(ids)
        sizes = np.asarray(lengths, np.int64)
        fetches: list[tuple[Rectangle, Fetch]] = []
        for rectangle in self._cut(lengths):
            # On a GPU a rectangle is only queued by then: copies of the next overlap its execution.
            if fetches and self._device.type == "cpu":
                yield
            ids_and_mask = filled(rectangle, given, sizes, self._padding_id, self._least_rows)
            rows = self._forward(*ids_and_mask)
            fetches.append((rectangle, self._transfer.to_host(rows)))
        return self._outputs(_gathered(fetches, len(sizes)))

    def _cut(self, lengths: Sequence[int]) -> list[Rectangle]:
        return cut_exactly(lengths) if self._is_exact else cut(lengths, self._settings.max_tokens)

    @torch.inference_mode()
    def _forward(self, ids: np.ndarray, mask: np.ndarray) -> torch.Tensor:
        tokens, weight = self._transfer.to_device([ids, mask])
        result = self._compiled(input_ids=tokens, attention_mask=weight)
        if self._settings.task == "classification":
            return result.logits.float()
        states = result.last_hidden_state.float()
        if self._settings.pooling == "cls":
            pooled = states[:, 0]
        else:
            pooled = (states * weight[:, :, None]).sum(1) / weight.sum(1, keepdim=True)
        if self._settings.normalize:
            pooled = F.normalize(pooled, dim=1)
        return pooled

    def _outputs(self, rows: np.ndarray) -> dict[str, Tensor]:
        if self._settings.task == "classification":
            return classify(rows, self._settings.labels)
        return {"embedding": Tensor("FP32", rows)}


def _gathered(fetches: Sequence[tuple[Rectangle, Fetch]], rows: int) -> np.ndarray:
    """[rows, numbers] in the order that rows were given in."""
    parts = [fetch()[: len(rectangle.rows)] for rectangle, fetch in fetches]
    outputs = np.empty((rows, parts[0].shape[1]), parts[0].dtype)
    for (rectangle, _), part in zip(fetches, parts, strict=True):
        outputs[rectangle.rows] = part
    return outputs


def _compiled(model: Any, device: torch.device) -> Any:
    """On a CPU weights become constants that the compiler lays out as it likes."""
    return torch.compile(model, dynamic=True, options={"freezing": device.type == "cpu"})
