"""A BERT-family encoder run by onnxruntime, in rectangles of rows of similar length."""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from serving.contract import TensorSpec
from serving.worker.engines import onnx_runtime
from serving.worker.engines.contract import LoadFailed, Tensor
from serving.worker.engines.encoder import onnx_graph
from serving.worker.engines.encoder.architectures import Architecture
from serving.worker.engines.encoder.heads import classification_outputs, classify, embedding_outputs
from serving.worker.engines.encoder.rectangles import Rectangle, cut, filled
from serving.worker.engines.encoder.settings import EncoderSettings

FLOAT = 1
"""`TensorProto.FLOAT`"""


class OnnxEncoder:
    """Loads on creation. Raises `LoadFailed` for options that onnxruntime does not compute here."""

    can_yield = False

    def __init__(self, settings: EncoderSettings, shape: Architecture | None, device: torch.device) -> None:
        if shape is None:
            raise LoadFailed(
                f"option execution=onnx: there is no graph for {settings.model_type}; export the model and"
                " register it with the onnx engine"
            )
        if settings.dtype != "fp32" or settings.compile:
            raise LoadFailed("option execution=onnx runs fp32 or int8, and is compiled by itself")
        self._settings, self._shape = settings, shape
        self._padding_id = int(settings.config.get("pad_token_id") or 0)
        model = onnx_graph.build(settings, shape)
        self._vocabulary = next(each.dims[0] for each in model.graph.initializer if each.name == "words")
        # Not `str(device)`: torch has no threads of its own here, but was told how many this replica has.
        self._session = _session(model, settings.quantize, str(device), torch.get_num_threads())

    @property
    def vocabulary(self) -> int:
        return int(self._vocabulary)

    def outputs(self) -> tuple[TensorSpec, ...]:
        if self._settings.task == "classification":
            return classification_outputs(len(self._settings.labels))
        return embedding_outputs(self._shape.hidden)

    def executed_tokens(self, lengths: Sequence[int]) -> int:
        return sum(rectangle.cells for rectangle in self._cut(lengths))

    def notes(self) -> tuple[str, ...]:
        kind = "int8 matrices" if self._settings.quantize == "int8" else "fp32"
        return (f"onnxruntime ({kind}), in rectangles of similar lengths.",)

    def warm_up(self) -> None:
        """onnxruntime plans memory by shape; nothing else depends on it."""
        for rows, length in ((1, 8), (1, 32), (8, 16), (32, 16)):
            self._forward(np.ones((rows, length), np.int64), np.ones((rows, length), np.int64))

    def run(
        self, ids: Sequence[np.ndarray], lengths: Sequence[int]
    ) -> Generator[None, None, dict[str, Tensor]]:
        given = np.concatenate(ids)
        sizes = np.asarray(lengths, np.int64)
        outputs: np.ndarray | None = None
        for number, rectangle in enumerate(self._cut(lengths)):
            if number:
                yield
            rows = self._forward(*filled(rectangle, given, sizes, self._padding_id))
            if outputs is None:
                outputs = np.empty((len(sizes), rows.shape[1]), rows.dtype)
            outputs[rectangle.rows] = rows
        assert outputs is not None  # a batch has rows
        return self._named(outputs)

    def _cut(self, lengths: Sequence[int]) -> list[Rectangle]:
        return cut(lengths, self._settings.max_tokens)

    def _forward(self, ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        with onnx_runtime.translated_errors():
            rows: np.ndarray = self._session.run(["rows"], {"ids": ids, "mask": mask})[0]
        return rows

    def _named(self, rows: np.ndarray) -> dict[str, Tensor]:
        if self._settings.task == "classification":
            return classify(rows, self._settings.labels)
        if self._settings.normalize:
            norms = np.linalg.norm(rows, axis=1, keepdims=True)
            rows = rows / np.maximum(norms, 1e-12)
        return {"embedding": Tensor("FP32", rows)}


def _session(model: Any, quantize: str, device: str, threads: int) -> Any:
    if quantize == "none":
        return onnx_runtime.open_session(model.SerializeToString(), device, threads)
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "int8.onnx"
        quantize_dynamic(
            model,
            file,
            weight_type=QuantType.QInt8,
            per_channel=True,
            # Shape inference does not look behind onnxruntime's own operators: all of these give FP32.
            extra_options={"DefaultTensorType": FLOAT},
        )
        return onnx_runtime.open_session(file, device, threads)
