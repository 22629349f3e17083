"""What is made of an encoder's token states: embeddings or class scores, rows in the given order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F

from serving.contract import TensorSpec
from serving.worker.engines.contract import Tensor
from serving.worker.engines.encoder.packing import Packing
from serving.worker.engines.encoder.settings import Pooling
from serving.worker.engines.encoder.transfer import InPlace, Transfer


class Head(Protocol):
    @property
    def reads_first_tokens(self) -> bool:
        """Whether nothing but the first token of each row matters to it."""
        ...

    def outputs(self) -> tuple[TensorSpec, ...]: ...

    def __call__(self, states: torch.Tensor, packing: Packing) -> dict[str, Tensor]:
        """[padded, hidden] → named outputs with `packing.rows` rows, in the order they were given."""
        ...


class EmbeddingHead:
    def __init__(
        self, hidden: int, pooling: Pooling, *, normalize: bool, transfer: Transfer | None = None
    ) -> None:
        self.reads_first_tokens = pooling == "cls"
        self._hidden = hidden
        self._pooling = pooling
        self._normalize = normalize
        self._transfer = transfer or InPlace()

    def outputs(self) -> tuple[TensorSpec, ...]:
        return embedding_outputs(self._hidden)

    def __call__(self, states: torch.Tensor, packing: Packing) -> dict[str, Tensor]:
        pooled = self._pool(states, packing).float()
        if self._normalize:
            pooled = F.normalize(pooled, dim=1)
        return {"embedding": Tensor("FP32", _in_given_order(self._transfer.to_host(pooled)(), packing))}

    def _pool(self, states: torch.Tensor, packing: Packing) -> torch.Tensor:
        if self._pooling == "cls":
            return _first_tokens(states, packing, self._transfer)
        if states.device.type == "cpu":
            return mean_by_group(states, packing)
        return mean_by_row(states, packing, self._transfer)


class ClassificationHead:
    """Two linear layers on the first token of each row, as in transformers' classes."""

    reads_first_tokens = True

    def __init__(
        self,
        first: tuple[torch.Tensor, torch.Tensor],
        second: tuple[torch.Tensor, torch.Tensor],
        activation: Callable[[torch.Tensor], torch.Tensor],
        labels: tuple[str, ...],
        transfer: Transfer | None = None,
    ) -> None:
        self._transfer = transfer or InPlace()
        self._first, self._second = first, second
        self._activation = activation
        self._labels = labels

    def outputs(self) -> tuple[TensorSpec, ...]:
        return classification_outputs(len(self._labels))

    def __call__(self, states: torch.Tensor, packing: Packing) -> dict[str, Tensor]:
        hidden = self._activation(F.linear(_first_tokens(states, packing, self._transfer), *self._first))
        logits = F.linear(hidden, *self._second).float()
        return classify(_in_given_order(self._transfer.to_host(logits)(), packing), self._labels)


def embedding_outputs(hidden: int) -> tuple[TensorSpec, ...]:
    return (TensorSpec(name="embedding", datatype="FP32", shape=(-1, hidden)),)


def classification_outputs(labels: int) -> tuple[TensorSpec, ...]:
    return (
        TensorSpec(name="label", datatype="BYTES", shape=(-1,)),
        TensorSpec(name="score", datatype="FP32", shape=(-1,)),
        TensorSpec(name="logits", datatype="FP32", shape=(-1, labels)),
    )


def classify(logits: np.ndarray, labels: tuple[str, ...]) -> dict[str, Tensor]:
    """The best label of each row and its softmax probability, beside the raw logits [rows, labels]."""
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    best = logits.argmax(axis=1)
    score = shifted[np.arange(len(best)), best] / shifted.sum(axis=1)
    names = np.array([labels[index].encode() for index in best.tolist()], object)
    return {
        "label": Tensor("BYTES", names),
        "score": Tensor("FP32", score.astype(np.float32)),
        "logits": Tensor("FP32", logits),
    }


def mean_by_group(states: torch.Tensor, packing: Packing) -> torch.Tensor:
    """Mean over each row's tokens [rows, hidden], one call for all rows of a length: best on a CPU."""
    means = [
        states[group.start : group.stop].view(group.rows, group.length, -1).float().mean(1)
        for group in packing.groups
    ]
    return means[0] if len(means) == 1 else torch.cat(means)


def mean_by_row(states: torch.Tensor, packing: Packing, transfer: Transfer) -> torch.Tensor:
    """The same in one call, however many lengths there are: best where a call is a launch."""
    (lengths,) = transfer.to_device([packing.lengths])
    return torch.segment_reduce(states[: packing.tokens].float(), "mean", lengths=lengths, axis=0)


def _first_tokens(states: torch.Tensor, packing: Packing, transfer: Transfer) -> torch.Tensor:
    (starts,) = transfer.to_device([packing.starts])
    return states[starts]


def _in_given_order(rows: np.ndarray, packing: Packing) -> np.ndarray:
    if packing.rows == 1:
        return rows
    given = np.empty_like(rows)
    given[packing.order] = rows
    return given
