"""Copies between host and device. On CUDA: through pinned memory, on a stream of their own.

`to_device` returns at once; work queued on the device afterwards waits for the copy, the host does not.
`to_host` returns a promise; waiting for it sleeps instead of spinning, and waits for that copy only. So the
copies of one rectangle overlap the execution of another, and no thread but the engine's touches the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch

_cuda: Any = torch.cuda  # its classes are without types

STAGES = 4
"""Uploads that may be under way at a time; one more waits for the oldest."""

Fetch = Callable[[], np.ndarray]
"""Waits for a result and returns it."""


class Transfer(Protocol):
    def to_device(self, arrays: Sequence[np.ndarray]) -> list[torch.Tensor]: ...

    def to_host(self, tensor: torch.Tensor) -> Fetch: ...


class InPlace:
    """Host and device are the same memory."""

    def to_device(self, arrays: Sequence[np.ndarray]) -> list[torch.Tensor]:
        return [torch.from_numpy(array) for array in arrays]

    def to_host(self, tensor: torch.Tensor) -> Fetch:
        return tensor.numpy


class Copier(Protocol):
    """What staging needs from a device; tests have one without a device."""

    def pinned(self, size_bytes: int) -> torch.Tensor:
        """Host memory (uint8) that the device reads by itself."""
        ...

    def upload(self, stage: torch.Tensor) -> tuple[torch.Tensor, Callable[[], None]]:
        """A copy of `stage` on the device, ordered before what is queued there next, and how to wait for it."""
        ...

    def download(self, tensor: torch.Tensor) -> tuple[torch.Tensor, Callable[[], None]]:
        """A host copy of `tensor`, whole once the wait is over."""
        ...


class Staged:
    """Uploads through a ring of pinned buffers that are kept and grow with need."""

    def __init__(self, copier: Copier) -> None:
        self._copier = copier
        self._stages: list[torch.Tensor | None] = [None] * STAGES
        self._waits: list[Callable[[], None]] = [lambda: None] * STAGES
        self._next = 0

    def to_device(self, arrays: Sequence[np.ndarray]) -> list[torch.Tensor]:
        spans, size_bytes = _laid_out(arrays)
        stage = self._free_stage(size_bytes)
        for array, (start, stop) in zip(arrays, spans, strict=True):
            stage[start:stop].numpy()[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        copy, self._waits[self._next] = self._copier.upload(stage[:size_bytes])
        self._next = (self._next + 1) % STAGES
        return [
            copy[start:stop].view(_dtype(array)).view(array.shape)
            for array, (start, stop) in zip(arrays, spans, strict=True)
        ]

    def to_host(self, tensor: torch.Tensor) -> Fetch:
        copy, wait = self._copier.download(tensor)

        def fetch() -> np.ndarray:
            wait()
            array: np.ndarray = copy.numpy()
            return array

        return fetch

    def _free_stage(self, size_bytes: int) -> torch.Tensor:
        self._waits[self._next]()  # its last copy may still be read
        stage = self._stages[self._next]
        if stage is None or len(stage) < size_bytes:
            stage = self._stages[self._next] = self._copier.pinned(
                1 << max(12, (size_bytes - 1).bit_length())
            )
        return stage


class CudaCopier:
    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream: Any = _cuda.Stream(device)

    def pinned(self, size_bytes: int) -> torch.Tensor:
        return torch.empty(size_bytes, dtype=torch.uint8, pin_memory=True)

    def upload(self, stage: torch.Tensor) -> tuple[torch.Tensor, Callable[[], None]]:
        current = _cuda.current_stream(self._device)
        with _cuda.stream(self._stream):
            copy = stage.to(self._device, non_blocking=True)
            done = self._event()
        current.wait_event(done)
        copy.record_stream(current)  # its memory belongs to the copying stream
        return copy, done.synchronize

    def download(self, tensor: torch.Tensor) -> tuple[torch.Tensor, Callable[[], None]]:
        copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        copy.copy_(tensor, non_blocking=True)
        return copy, self._event().synchronize

    def _event(self) -> Any:
        done = _cuda.Event(blocking=True)
        done.record()
        return done


def transfer_for(device: torch.device) -> Transfer:
    return Staged(CudaCopier(device)) if device.type == "cuda" else InPlace()


def _laid_out(arrays: Sequence[np.ndarray]) -> tuple[list[tuple[int, int]], int]:
    """Where each array lies in one buffer, each at a multiple of 16 bytes, and the buffer's size."""
    spans, at = [], 0
    for array in arrays:
        spans.append((at, at + array.nbytes))
        at += -(-array.nbytes // 16) * 16
    return spans, max(at, 16)


def _dtype(array: np.ndarray) -> torch.dtype:
    return torch.from_numpy(np.empty(0, array.dtype)).dtype
