"""Exported programs for the tests of the tensor engine, each saved to disk and loaded from there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from serving.worker.engines.tensor import TensorEngine

ROWS = torch.export.Dim("rows", max=64)


class Scored(torch.nn.Module):
    def forward(self, image: Any, scale: Any) -> Any:
        return {"scores": image * scale[:, None], "total": image.sum(1)}


class Doubled(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x + x


class Same(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x.clone()


class TwoBatches(torch.nn.Module):
    def forward(self, a: Any, b: Any) -> Any:
        return a + 1, b + 1


def scored(path: Path) -> TensorEngine:
    example = (torch.ones(4, 3), torch.ones(4))
    return _saved(path, Scored(), example, {"image": {0: ROWS}, "scale": {0: ROWS}})


def doubled_in_fours(path: Path) -> TensorEngine:
    return _saved(path, Doubled(), (torch.ones(4, 2),))


def doubled_of_any_width(path: Path) -> TensorEngine:
    width = torch.export.Dim("width", max=64)
    return _saved(path, Doubled(), (torch.ones(4, 5),), {"x": {0: ROWS, 1: width}})


def same(path: Path, dtype: str) -> TensorEngine:
    return _saved(path, Same(), (torch.ones(4, 2).to(getattr(torch, dtype)),), {"x": {0: ROWS}})


def of_two_batches(path: Path) -> TensorEngine:
    return _saved(path, TwoBatches(), (torch.ones(2, 2), torch.ones(3, 2)))


def _saved(path: Path, module: Any, arguments: tuple, dynamic: Any = None) -> TensorEngine:
    program = torch.export.export(module, arguments, dynamic_shapes=dynamic)
    torch.export.save(program, path / "model.pt2")
    engine = TensorEngine(path, {})
    engine.load()
    engine.warm_up()
    return engine
