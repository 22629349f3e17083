"""torch on one device: dtypes, threads, and its errors told apart."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from serving.errors import OutOfMemory
from serving.worker.engines.contract import DeviceLost, LoadFailed

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED")
_FATAL = ("CUDA error", "CUBLAS_STATUS_", "device-side assert", "NCCL error", "uncorrectable ECC")


def open_device(name: str, threads: int) -> torch.device:
    """Raises `LoadFailed` when there is no such device."""
    torch.set_num_threads(max(1, threads))
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise LoadFailed(f"no such device: {name!r} (cpu or cuda:N)") from error
    if device.type not in ("cpu", "cuda"):
        raise LoadFailed(f"device must be cpu or cuda:N, not {name!r}")
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (device.index or 0) >= count:
            raise LoadFailed(f"device {name} is not there: this host has {count} CUDA devices")
    return device


def synchronize(device: torch.device) -> None:
    """Wait for the device, so that times are the device's and its errors are raised here."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@contextmanager
def translated_errors() -> Iterator[None]:
    """Turn torch's errors into `OutOfMemory` or `DeviceLost` where they are that; let others through."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise OutOfMemory("the device has not enough memory", retry_after_s=1.0) from error
    except MemoryError as error:
        raise OutOfMemory("the host has not enough memory", retry_after_s=1.0) from error
    except RuntimeError as error:
        text = str(error)
        if any(mark in text for mark in _OUT_OF_MEMORY):
            raise OutOfMemory("the device has not enough memory", retry_after_s=1.0) from error
        if any(mark in text for mark in _FATAL):
            raise DeviceLost(f"the device failed: {text.splitlines()[0][:200]}") from error
        raise


def peak_bytes(name: str) -> int:
    """The most that torch has reserved on a CUDA device since the start of the process."""
    return torch.cuda.max_memory_reserved(torch.device(name))
