"""What this host can run models on, as far as this process may use it."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

import psutil
import pynvml

from serving.contract import DeviceInfo

_CPU_INFO = Path("/proc/cpuinfo")
_CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def devices() -> tuple[DeviceInfo, ...]:
    """The CPU first, then every CUDA device as `cuda:N`."""
    return (_cpu(), *_cuda())


def memory_bytes() -> int:
    """Of the machine, or of the container when that is less."""
    total = psutil.virtual_memory().total
    return min([total, *filter(None, map(_limit, _CGROUP_LIMITS))])


def features() -> tuple[str, ...]:
    """What workers of this host can use beyond the ordinary: instructions, a compiler, optional libraries."""
    flags = _cpu_flags()
    found = {
        "bf16": bool(flags & {"avx512_bf16", "amx_bf16", "bf16"}),
        "int8": bool(flags & {"avx512_vnni", "avx_vnni", "amx_int8", "i8mm"}),
        "compiler": any(map(shutil.which, ("c++", "g++", "clang++"))),
        "onnxruntime": all(map(importlib.util.find_spec, ("onnxruntime", "onnx"))),
    }
    return tuple(name for name, is_there in found.items() if is_there)


def _cpu_flags() -> set[str]:
    """`flags` of x86, `Features` of ARM, as Linux lists them."""
    try:
        lines = _CPU_INFO.read_text().splitlines()
    except OSError:
        return set()
    listed = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return set(listed.partition(":")[2].split())


def _cpu() -> DeviceInfo:
    return DeviceInfo(name="cpu", kind="cpu", memory_bytes=memory_bytes(), cores=len(os.sched_getaffinity(0)))


def _limit(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() and int(text) > 0 else None


def _cuda() -> list[DeviceInfo]:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        return [_cuda_device(index) for index in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError:
        return []
    finally:
        pynvml.nvmlShutdown()


def _cuda_device(index: int) -> DeviceInfo:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    product = pynvml.nvmlDeviceGetName(handle)
    name = product.decode(errors="replace") if isinstance(product, bytes) else str(product)
    return DeviceInfo(name=f"cuda:{index}", kind="cuda", memory_bytes=int(memory.total), product=name)
