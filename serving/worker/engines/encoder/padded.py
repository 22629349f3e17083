"""Any other transformers encoder, through its own classes: rows padded to a bucket of lengths."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from serving.contract import TensorSpec
from serving.worker.engines.contract import LoadFailed, Tensor
from serving.worker.engines.encoder.heads import classification_outputs, classify, embedding_outputs
from serving.worker.engines.encoder.settings import EncoderSettings
from serving.worker.engines.torch_device import DTYPES

_LENGTHS = (16, 32, 64, 128, 256, 512)
_ROWS = (1, 2, 4, 8, 16, 32)
_WARM_TOKENS = 2048


class PaddedEncoder:
    """Loads on creation. Raises `LoadFailed` for what transformers cannot load without remote code."""

    can_yield = False

    def __init__(self, settings: EncoderSettings, device: torch.device) -> None:
        self._settings = settings
        self._device = device
        self._model = _load(settings).to(device)
        self._padding_id = int(settings.config.get("pad_token_id") or 0)
        # One compilation for all shapes: each one costs tens of seconds on a CPU.
        self._compiled: Any = torch.compile(self._model, dynamic=True) if settings.compile else self._model

    @property
    def vocabulary(self) -> int:
        return int(self._model.get_input_embeddings().weight.shape[0])

    def outputs(self) -> tuple[TensorSpec, ...]:
        if self._settings.task == "classification":
            return classification_outputs(len(self._settings.labels))
        return embedding_outputs(int(self._model.config.hidden_size))

    def warm_up(self) -> None:
        for length in _LENGTHS:
            for rows in _ROWS:
                if length <= self._settings.max_tokens and rows * length <= _WARM_TOKENS:
                    self._forward(np.ones((rows, length), np.int64), np.ones((rows, length), np.int64))

    def executed_tokens(self, lengths: Sequence[int]) -> int:
        rows = _bucket(len(lengths), _ROWS) if self._settings.compile else len(lengths)
        return rows * _bucket(max(lengths), _LENGTHS)

    def notes(self) -> tuple[str, ...]:
        return ("Padded: rows run in rectangles.",)

    def run(
        self, ids: Sequence[np.ndarray], lengths: Sequence[int]
    ) -> Generator[None, None, dict[str, Tensor]]:
        yield from ()
        given = np.concatenate(ids)
        sizes = np.asarray(lengths, np.int64)
        rows = _bucket(len(sizes), _ROWS) if self._settings.compile else len(sizes)
        mask = np.zeros((rows, _bucket(int(sizes.max()), _LENGTHS)), np.int64)
        mask[: len(sizes)] = np.arange(mask.shape[1]) < sizes[:, None]
        mask[len(sizes) :, 0] = 1  # rows that only fill the bucket: one token, so that nothing divides by 0
        padded = np.full(mask.shape, self._padding_id, np.int64)
        padded[: len(sizes)][mask[: len(sizes)] == 1] = given
        return self._outputs(self._forward(padded, mask)[: len(sizes)])

    @torch.inference_mode()
    def _forward(self, ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        tokens = torch.from_numpy(ids).to(self._device)
        weight = torch.from_numpy(mask).to(self._device)
        result = self._compiled(input_ids=tokens, attention_mask=weight)
        if self._settings.task == "classification":
            return result.logits.float().cpu().numpy()
        states = result.last_hidden_state.float()
        if self._settings.pooling == "cls":
            pooled = states[:, 0]
        else:
            pooled = (states * weight[:, :, None]).sum(1) / weight.sum(1, keepdim=True)
        if self._settings.normalize:
            pooled = F.normalize(pooled, dim=1)
        return pooled.cpu().numpy()

    def _outputs(self, rows: np.ndarray) -> dict[str, Tensor]:
        if self._settings.task == "classification":
            return classify(rows, self._settings.labels)
        return {"embedding": Tensor("FP32", rows)}


def _load(settings: EncoderSettings) -> Any:
    # Imported here: packed encoders never pay the seconds that transformers takes to import.
    from transformers import AutoModel, AutoModelForSequenceClassification

    kind = AutoModelForSequenceClassification if settings.task == "classification" else AutoModel
    try:
        model = kind.from_pretrained(
            str(settings.path),
            dtype=DTYPES[settings.dtype],
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
        )
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise LoadFailed(
            f"transformers cannot load this model: {str(error).splitlines()[0][:300]}"
        ) from error
    return model.eval()


def _bucket(size: int, buckets: Sequence[int]) -> int:
    return next((bucket for bucket in buckets if bucket >= size), size)
