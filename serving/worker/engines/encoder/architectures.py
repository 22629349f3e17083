"""Encoders of the BERT family: the same computation under different names of weights.

An architecture that is not listed here runs padded, through transformers' own classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from serving.worker.engines.contract import LoadFailed
from serving.worker.engines.encoder.settings import EncoderSettings

ACTIVATIONS = {"gelu": "none", "gelu_new": "tanh", "gelu_pytorch_tanh": "tanh"}
"""`hidden_act` → the approximation that GELU uses."""


@dataclass(frozen=True, slots=True)
class Names:
    """Where an architecture keeps its weights; layer names are below `layer`."""

    prefix: str
    layer: str
    query: str
    key: str
    value: str
    attention_out: str
    attention_norm: str
    up: str
    down: str
    output_norm: str
    classifier: tuple[str, str]
    """The two linear layers of the classification head."""
    classifier_activation: str
    has_token_types: bool = True
    starts_behind_padding: bool = False
    """RoBERTa numbers positions from the padding id + 1."""


_BERT = Names(
    prefix="bert.",
    layer="encoder.layer.{}.",
    query="attention.self.query",
    key="attention.self.key",
    value="attention.self.value",
    attention_out="attention.output.dense",
    attention_norm="attention.output.LayerNorm",
    up="intermediate.dense",
    down="output.dense",
    output_norm="output.LayerNorm",
    classifier=("pooler.dense", "classifier"),
    classifier_activation="tanh",
)
_ROBERTA = Names(
    prefix="roberta.",
    layer=_BERT.layer,
    query=_BERT.query,
    key=_BERT.key,
    value=_BERT.value,
    attention_out=_BERT.attention_out,
    attention_norm=_BERT.attention_norm,
    up=_BERT.up,
    down=_BERT.down,
    output_norm=_BERT.output_norm,
    classifier=("classifier.dense", "classifier.out_proj"),
    classifier_activation="tanh",
    starts_behind_padding=True,
)
_DISTILBERT = Names(
    prefix="distilbert.",
    layer="transformer.layer.{}.",
    query="attention.q_lin",
    key="attention.k_lin",
    value="attention.v_lin",
    attention_out="attention.out_lin",
    attention_norm="sa_layer_norm",
    up="ffn.lin1",
    down="ffn.lin2",
    output_norm="output_layer_norm",
    classifier=("pre_classifier", "classifier"),
    classifier_activation="relu",
    has_token_types=False,
)
_BY_TYPE = {"bert": _BERT, "roberta": _ROBERTA, "xlm-roberta": _ROBERTA, "distilbert": _DISTILBERT}


@dataclass(frozen=True, slots=True)
class Architecture:
    names: Names
    layers: int
    heads: int
    hidden: int
    norm_epsilon: float
    gelu: str
    position_offset: int

    @property
    def head_size(self) -> int:
        return self.hidden // self.heads


def find(settings: EncoderSettings) -> Architecture | None:
    """The packed architecture that computes exactly what this config asks for, or None.

    Raises `LoadFailed` when the config lacks a size.
    """
    config, names = settings.config, _BY_TYPE.get(settings.model_type)
    activation = config.get("hidden_act") or config.get("activation") or "gelu"
    has_plain_positions = config.get("position_embedding_type", "absolute") == "absolute"
    is_encoder = not config.get("is_decoder", False)
    if names is None or activation not in ACTIVATIONS or not has_plain_positions or not is_encoder:
        return None
    return Architecture(
        names=names,
        layers=_size(config, "num_hidden_layers", "n_layers"),
        heads=_size(config, "num_attention_heads", "n_heads"),
        hidden=_size(config, "hidden_size", "dim"),
        norm_epsilon=float(config.get("layer_norm_eps", 1e-12)),
        gelu=ACTIVATIONS[activation],
        position_offset=int(config.get("pad_token_id", 1)) + 1 if names.starts_behind_padding else 0,
    )


def _size(config: Mapping[str, Any], name: str, name_in_distilbert: str) -> int:
    size = config.get(name) or config.get(name_in_distilbert)
    if not isinstance(size, int) or size < 1:
        raise LoadFailed(f"config.json lacks {name}")
    return size
