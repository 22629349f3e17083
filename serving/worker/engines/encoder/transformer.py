"""A model out of transformers' own classes: loaded, asked for token states, its linear layers replaced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from serving.worker.engines.contract import LoadFailed
from serving.worker.engines.encoder.linear import Linear, linear
from serving.worker.engines.encoder.settings import EncoderSettings

Restore = Callable[[], None]


def load(settings: EncoderSettings, dtype: torch.dtype) -> Any:
    """Raises `LoadFailed` for what transformers cannot load without code from the artifact."""
    # Imported here: packed encoders never pay the seconds that transformers takes to import.
    from transformers import AutoModel, AutoModelForSequenceClassification

    kind = AutoModelForSequenceClassification if settings.task == "classification" else AutoModel
    try:
        model = kind.from_pretrained(
            str(settings.path),
            dtype=dtype,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
        )
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise LoadFailed(
            f"transformers cannot load this model: {str(error).splitlines()[0][:300]}"
        ) from error
    return model.eval()


def hidden_size(model: Any) -> int:
    return int(model.config.hidden_size)


def replace_linears(model: Any, quantize: str) -> Restore:
    """Run the model's linear layers through the fastest ones of this machine; the result undoes it.

    Raises `LoadFailed` when `quantize` asks for layers that do not run here.
    """
    replaced: list[tuple[nn.Module, str, nn.Linear]] = []
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                replaced.append((parent, name, child))
                setattr(parent, name, _Fast(child, quantize))

    def restore() -> None:
        for parent, name, child in replaced:
            setattr(parent, name, child)

    return restore


class _Fast(nn.Module):
    """Stands in for `nn.Linear` in inference, whatever leads the last dimension."""

    def __init__(self, plain: nn.Linear, quantize: str) -> None:
        super().__init__()
        self.in_features, self.out_features = plain.in_features, plain.out_features
        weight = plain.weight.detach()
        bias = torch.zeros(len(weight), dtype=weight.dtype) if plain.bias is None else plain.bias.detach()
        self._run: Linear = linear(weight.contiguous(), bias.to(weight.device), quantize=quantize)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = self._run(x.reshape(-1, self.in_features))
        return flat.view(*x.shape[:-1], self.out_features)
