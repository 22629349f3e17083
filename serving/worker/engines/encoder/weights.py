"""Weights from safetensors files: nothing in them can execute, and torch maps them without a copy."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from serving.worker.engines.contract import LoadFailed

_OLD_NAMES = {".gamma": ".weight", ".beta": ".bias"}


class Weights:
    """The tensors of an artifact by name, with the architecture's prefix taken off."""

    def __init__(self, directory: Path, prefix: str, dtype: torch.dtype, device: torch.device) -> None:
        """Raises `LoadFailed` when there are no readable weights."""
        self._dtype = dtype
        self._device = device
        files = sorted(directory.glob("*.safetensors"))
        if not files:
            raise LoadFailed("the artifact has no *.safetensors file")
        self._tensors: dict[str, torch.Tensor] = {}
        for file in files:
            for name, tensor in _read(file).items():
                self._tensors[_plain(name.removeprefix(prefix))] = tensor

    def take(self, name: str) -> torch.Tensor:
        """One tensor in the engine's dtype, on its device. Raises `LoadFailed` when it is not there."""
        tensor = self._tensors.get(name)
        if tensor is None:
            raise LoadFailed(f"the weights lack {name}: does config.json belong to them?")
        return tensor.to(self._device, self._dtype).contiguous()

    def pair(self, name: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Weight and bias of a layer."""
        return self.take(f"{name}.weight"), self.take(f"{name}.bias")


def _read(file: Path) -> dict[str, torch.Tensor]:
    try:
        return load_file(file)
    except (OSError, SafetensorError) as error:
        raise LoadFailed(f"{file.name} cannot be read: {error}") from error


def _plain(name: str) -> str:
    for old, new in _OLD_NAMES.items():
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name
