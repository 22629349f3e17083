"""The process by itself: its memory, measured and given back where loading left it over; its age."""

from __future__ import annotations

import ctypes
import gc
import time

import psutil


def resident_bytes() -> int:
    return psutil.Process().memory_info().rss


def age_s() -> float:
    """Seconds since the process was started, the interpreter's own start and every import included."""
    return time.time() - psutil.Process().create_time()


def settle() -> None:
    """Call once when a model is warm: it is never garbage, so no collection needs to walk it again.

    Reading and repacking weights leaves freed pages behind (80 MiB with MiniLM); glibc keeps them unless
    it is told.
    """
    gc.collect()
    gc.freeze()
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # not in musl
    if malloc_trim is not None:
        malloc_trim(0)


def device_bytes(device: str, before_bytes: int) -> int:
    """What a replica needs on its device: the process's growth, or the peak of the CUDA allocator."""
    if device.startswith("cuda"):
        from serving.worker.engines import torch_device

        return torch_device.peak_bytes(device)
    return max(0, resident_bytes() - before_bytes)
