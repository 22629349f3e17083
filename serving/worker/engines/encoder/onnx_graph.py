"""A BERT-family encoder as an ONNX graph, built from the artifact's own weights.

The graph uses the operators that onnxruntime has for such models (`com.microsoft`: Attention, BiasGelu,
SkipLayerNormalization; docs/ContribOperators.md of onnxruntime), which its CPU provider fuses and prepacks.
Padding is masked inside; pooling or the classification head is part of the graph.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from serving.worker.engines.contract import LoadFailed
from serving.worker.engines.encoder.architectures import Architecture
from serving.worker.engines.encoder.settings import EncoderSettings
from serving.worker.engines.encoder.weights import Weights
from serving.worker.engines.onnx_runtime import INSTALL

OPSET, IR_VERSION = 17, 8
CONTRIB = "com.microsoft"
MAX_BYTES = 2_000_000_000
"""A protobuf message, and so a model in one piece, has less than 2 GiB."""


def build(settings: EncoderSettings, shape: Architecture) -> Any:
    """An `onnx.ModelProto`: `ids` and `mask` (int64 [rows, length]) → `rows` (FP32 [rows, numbers]).

    Raises `LoadFailed` when the weights do not fit the architecture, or the library is missing.
    """
    try:
        import onnx  # noqa: F401 - said here, where the way out can be said
    except ImportError as error:
        raise LoadFailed(f"the onnx library is not installed on this host ({INSTALL})") from error
    graph = _Graph(shape)
    weights = Weights(settings.path, shape.names.prefix, torch.float32, torch.device("cpu"))
    with torch.inference_mode():
        states = graph.embedded(weights)
        for index in range(shape.layers):
            states = graph.layer(weights, index, states)
        if settings.task == "classification":
            graph.classified(weights, states)
        else:
            graph.pooled(states, settings.pooling)
    return graph.model()


class _Graph:
    """Collects nodes and constants; each method returns the name of what it computed."""

    def __init__(self, shape: Architecture) -> None:
        from onnx import helper, numpy_helper

        self._helper, self._numpy_helper = helper, numpy_helper
        self._shape = shape
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._bytes = 0

    def embedded(self, weights: Weights) -> str:
        table = weights.take("embeddings.position_embeddings.weight")[self._shape.position_offset :]
        if self._shape.names.has_token_types:
            table = table + weights.take("embeddings.token_type_embeddings.weight")[0]
        self._node("Cast", ["mask"], "mask32", to=6)
        self._node("Shape", ["ids"], "length", start=1, end=2)
        words = self._node(
            "Gather", [self._weight("words", weights.take("embeddings.word_embeddings.weight")), "ids"]
        )
        zero, axis = self._integers("zero", 0), self._integers("first_axis", 0)
        positions = self._node("Slice", [self._weight("positions", table), zero, "length", axis])
        summed = self._node("Add", [words, positions])
        norm = self._pair("embedding_norm", weights.pair("embeddings.LayerNorm"))
        return self._node("LayerNormalization", [summed, *norm], axis=-1, epsilon=self._shape.norm_epsilon)

    def layer(self, weights: Weights, index: int, states: str) -> str:
        names, prefix = self._shape.names, self._shape.names.layer.format(index)
        mixed = self._attention(weights, prefix, states)
        out, out_bias = self._linear(weights, prefix + names.attention_out, mixed)
        states = self._normalised(weights, prefix + names.attention_norm, out, states, out_bias)
        up, up_bias = self._linear(weights, prefix + names.up, states)
        gelu = "BiasGelu" if self._shape.gelu == "none" else "FastGelu"
        wide = self._node(gelu, [up, up_bias], domain=CONTRIB)
        down, down_bias = self._linear(weights, prefix + names.down, wide)
        return self._normalised(weights, prefix + names.output_norm, down, states, down_bias)

    def pooled(self, states: str, pooling: str) -> None:
        if pooling == "cls":
            self._first(states, "rows")
            return
        self._node("Cast", ["mask"], "weight", to=1)
        column = self._node("Unsqueeze", ["weight", self._integers("last_axis", 2)])
        axis = self._integers("length_axis", 1)
        total = self._node("ReduceSum", [self._node("Mul", [states, column]), axis], keepdims=0)
        count = self._node("ReduceSum", [column, axis], keepdims=0)
        self._node("Div", [total, count], "rows")

    def classified(self, weights: Weights, states: str) -> None:
        first, second = self._shape.names.classifier
        hidden = self._gemm(weights, first, self._first(states, "first"))
        activation = "Tanh" if self._shape.names.classifier_activation == "tanh" else "Relu"
        self._gemm(weights, second, self._node(activation, [hidden]), "rows")

    def model(self) -> Any:
        """Raises `LoadFailed` when it is too large for one protobuf message."""
        if self._bytes > MAX_BYTES:
            raise LoadFailed("the model is too large for onnxruntime in one piece (2 GiB)")
        helper = self._helper
        inputs = [helper.make_tensor_value_info(name, 7, ["rows", "length"]) for name in ("ids", "mask")]
        outputs = [helper.make_tensor_value_info("rows", 1, ["rows", "numbers"])]
        graph = helper.make_graph(self._nodes, "encoder", inputs, outputs, self._constants)
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(CONTRIB, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)

    # ------------------------------------------------------------ parts

    def _attention(self, weights: Weights, prefix: str, states: str) -> str:
        names = self._shape.names
        pairs = [weights.pair(prefix + name) for name in (names.query, names.key, names.value)]
        fused = self._weight(f"{prefix}qkv", torch.cat([weight for weight, _ in pairs]).T)
        bias = self._weight(f"{prefix}qkv.bias", torch.cat([bias for _, bias in pairs]))
        inputs = [states, fused, bias, "mask32"]
        return self._node("Attention", inputs, domain=CONTRIB, num_heads=self._shape.heads)

    def _normalised(self, weights: Weights, name: str, fresh: str, states: str, bias: str) -> str:
        """Layer norm of `fresh + bias + states`."""
        inputs = [fresh, states, *self._pair(name, weights.pair(name)), bias]
        return self._node("SkipLayerNormalization", inputs, domain=CONTRIB, epsilon=self._shape.norm_epsilon)

    def _linear(self, weights: Weights, name: str, states: str) -> tuple[str, str]:
        """The product, and the bias that the next operator adds."""
        weight, bias = weights.pair(name)
        product = self._node("MatMul", [states, self._weight(name, weight.T)])
        return product, self._weight(f"{name}.bias", bias)

    def _gemm(self, weights: Weights, name: str, states: str, output: str = "") -> str:
        return self._node("Gemm", [states, *self._pair(name, weights.pair(name))], output, transB=1)

    def _first(self, states: str, output: str) -> str:
        """States of each row's first token."""
        return self._node("Gather", [states, self._integers("at_first", 0, is_scalar=True)], output, axis=1)

    def _pair(self, name: str, pair: tuple[torch.Tensor, torch.Tensor]) -> list[str]:
        return [self._weight(f"{name}.weight", pair[0]), self._weight(f"{name}.bias_", pair[1])]

    def _weight(self, name: str, tensor: torch.Tensor) -> str:
        return self._constant(name, np.ascontiguousarray(tensor.numpy()))

    def _integers(self, name: str, value: int, *, is_scalar: bool = False) -> str:
        return self._constant(name, np.array(value if is_scalar else [value], np.int64))

    def _constant(self, name: str, array: np.ndarray) -> str:
        self._bytes += array.nbytes
        self._constants.append(self._numpy_helper.from_array(array, name))
        return name

    def _node(self, kind: str, inputs: list[str], output: str = "", **attributes: Any) -> str:
        name = output or f"{kind}_{len(self._nodes)}"
        self._nodes.append(self._helper.make_node(kind, inputs, [name], **attributes))
        return name
