"""Forwards of fixed shape, recorded once and replayed: CUDA graphs for small packed batches.

A small batch on a GPU is bound by launching kernels, not by running them. For a few sizes the whole forward
is recorded over buffers that stay where they are; a batch is padded to the next size, copied in, and
replayed by one launch. What records is a parameter, so that all but the recording runs without a device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from serving.worker.engines.encoder.packing import Packing

_cuda: Any = torch.cuda  # its classes are without types

SIZES = (16, 32, 64, 96, 128, 192, 256, 384, 512)
"""Padded tokens of the recorded forwards."""


class FixedInputs(NamedTuple):
    """Buffers of one size; `boundaries` int32 [tokens + 1], the rest int64 [tokens]."""

    ids: torch.Tensor
    positions: torch.Tensor
    row_of: torch.Tensor
    boundaries: torch.Tensor


Forward = Callable[[FixedInputs], torch.Tensor]
Record = Callable[[Callable[[], torch.Tensor]], tuple[Callable[[], object], torch.Tensor]]
"""Runs a forward once; returns what replays it, and the tensor that each replay fills."""


class FixedForwards:
    def __init__(self, forward: Forward, record: Record, device: torch.device) -> None:
        self._forward, self._record, self._device = forward, record, device
        self._recorded: dict[int, tuple[FixedInputs, Callable[[], object], torch.Tensor]] = {}

    def record(self, tokens: int) -> None:
        """Raises what the device raises when it cannot record this forward."""
        inputs = self._inputs(tokens)
        replay, states = self._record(lambda: self._forward(inputs))
        self._recorded[tokens] = (inputs, replay, states)

    def _inputs(self, tokens: int) -> FixedInputs:
        """One row of zeros."""
        ids, positions, rows = torch.zeros(3, tokens, dtype=torch.int64, device=self._device).unbind(0)
        ends = torch.full((tokens + 1,), tokens, dtype=torch.int32, device=self._device)
        ends[0] = 0
        return FixedInputs(ids, positions, rows, ends)

    def size_for(self, tokens: int) -> int | None:
        """The recorded size that a batch of so many tokens is padded to."""
        return next((size for size in sorted(self._recorded) if size >= tokens), None)

    def run(self, packing: Packing) -> torch.Tensor:
        """[padded, hidden], valid until the next run; `packing` is padded to a recorded size."""
        inputs, replay, states = self._recorded[packing.padded]
        rows = row_of(packing)
        for buffer, array in zip(
            inputs, (packing.ids, packing.positions, rows, boundaries(packing)), strict=True
        ):
            # On the stream of the replays: the one before may still read these buffers.
            buffer.copy_(_pinned(array, self._device), non_blocking=True)
        replay()
        return states


def row_of(packing: Packing) -> np.ndarray:
    """int64 [padded]: the packed row of each token; padding counts as one more row."""
    lengths = np.diff(np.append(packing.starts, (packing.tokens, packing.padded)))
    return np.repeat(np.arange(len(lengths)), lengths)


def boundaries(packing: Packing) -> np.ndarray:
    """int32 [padded + 1]: where rows start, then where the padding does, then the end as often as it takes."""
    ends = np.full(packing.padded + 1, packing.padded, np.int32)
    ends[: packing.rows] = packing.starts
    ends[packing.rows] = packing.tokens
    return ends


class CudaRecorder:
    """Records into graphs that share one pool of memory."""

    def __init__(self) -> None:
        self._pool: Any = _cuda.graph_pool_handle()

    def __call__(self, forward: Callable[[], torch.Tensor]) -> tuple[Callable[[], object], torch.Tensor]:
        side = _cuda.Stream()
        side.wait_stream(_cuda.current_stream())
        with _cuda.stream(side):  # libraries allocate their workspaces in the first runs
            forward()
            forward()
        _cuda.current_stream().wait_stream(side)
        graph = _cuda.CUDAGraph()
        with _cuda.graph(graph, pool=self._pool):
            states = forward()
        return graph.replay, states


def _pinned(array: np.ndarray, device: torch.device) -> torch.Tensor:
    tensor = torch.from_numpy(array)
    return tensor.pin_memory() if device.type == "cuda" else tensor
