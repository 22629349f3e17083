"""Tiny encoders with random weights, of every architecture that tests try; nothing is downloaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

_SIZES: dict[str, int] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "vocab_size": 120,
    "max_position_embeddings": 64,
}
_DIFFERENT: dict[str, dict[str, Any]] = {
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64},
    "albert": {"embedding_size": 16},
    "electra": {"embedding_size": 16},
    "mobilebert": {
        "embedding_size": 16,
        "true_hidden_size": 16,
        "intra_bottleneck_size": 16,
        "num_feedforward_networks": 1,
    },
    "modernbert": {
        "max_position_embeddings": 256,
        "local_attention": 32,
        "global_attn_every_n_layers": 2,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "cls_token_id": 1,
        "sep_token_id": 2,
    },
    "deberta-v2": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 16},
    "nomic_bert": {"max_position_embeddings": 256},
    "eurobert": {"num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
}


def save(directory: Path, model_type: str, *, classes: int = 0, **changes: Any) -> Any:
    """Write a model to `directory` and return it; with `classes` a classifier, else the bare encoder."""
    import torch
    from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification

    settings = {**_SIZES, **_DIFFERENT.get(model_type, {}), **changes}
    if classes:
        settings["num_labels"] = classes
    config = AutoConfig.for_model(model_type, **settings)
    torch.manual_seed(0)
    kind = AutoModelForSequenceClassification if classes else AutoModel
    model = kind.from_config(config).eval()
    _vary(model)
    model.save_pretrained(directory)
    return model


def _vary(model: Any) -> None:
    """Fresh weights are so small that a model which mixes rows up would hardly differ: make them matter."""
    import torch

    for name, parameter in model.named_parameters():
        if "norm" not in name.lower():
            torch.nn.init.normal_(parameter.data, std=0.15)


def pooled(model: Any, row: list[int]) -> np.ndarray:
    """The reference: one row alone, no padding, mean over its tokens, length 1."""
    import torch

    with torch.inference_mode():
        states = model(input_ids=torch.tensor([row])).last_hidden_state[0]
        return torch.nn.functional.normalize(states.mean(0), dim=0).numpy()


def logits(model: Any, row: list[int]) -> np.ndarray:
    import torch

    with torch.inference_mode():
        return model(input_ids=torch.tensor([row])).logits[0].numpy()
