"""onnxruntime on one device: sessions, datatypes, and its errors told apart.

The library is imported on use: installations without the extra serve everything else.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from serving.errors import DataPlaneError, EngineFailed, OutOfMemory
from serving.worker.engines.contract import DeviceLost, LoadFailed, Tensor

INSTALL = "pip install -r requirements-onnx.txt"
DATATYPES = {
    "tensor(bool)": "BOOL",
    "tensor(uint8)": "UINT8",
    "tensor(uint16)": "UINT16",
    "tensor(uint32)": "UINT32",
    "tensor(uint64)": "UINT64",
    "tensor(int8)": "INT8",
    "tensor(int16)": "INT16",
    "tensor(int32)": "INT32",
    "tensor(int64)": "INT64",
    "tensor(float16)": "FP16",
    "tensor(float)": "FP32",
    "tensor(double)": "FP64",
    "tensor(bfloat16)": "BF16",
    "tensor(string)": "BYTES",
}
_BFLOAT16 = 16
"""`TensorProto.BFLOAT16` (onnx.proto): numpy has no such type."""
_OUT_OF_MEMORY = (
    "failed to allocate",
    "bad allocation",
    "bad_alloc",
    "out of memory",
    "smaller than requested bytes",
)
_FATAL = ("cuda failure", "cuda error", "cublas failure", "cudnn failure", "device-side assert")


def open_session(model: Path | bytes, device: str, threads: int) -> Any:
    """An `InferenceSession` of a model file (or its bytes) on `cpu` or `cuda:N`.

    Raises `LoadFailed` when onnxruntime or its CUDA provider is missing, or it does not take the model.
    """
    runtime = _library()
    providers = _providers(runtime, device)
    with translated_errors():
        try:
            session = runtime.InferenceSession(
                str(model) if isinstance(model, Path) else model, _options(runtime, threads), providers
            )
        except MemoryError:
            raise
        except Exception as error:  # its exceptions share no base, and a damaged file raises many of them
            if isinstance(known := _translated(error), OutOfMemory | DeviceLost):
                raise known from error
            raise LoadFailed(f"onnxruntime cannot load the model: {_first_line(error)}") from error
    if session.get_providers()[0] != _name(providers[0]):
        # It goes on with the CPU in silence, at a tenth of the speed that placement counts on.
        raise LoadFailed(f"onnxruntime could not start its CUDA provider on {device}; see the worker's log")
    return session


@contextmanager
def translated_errors() -> Iterator[None]:
    """Turn onnxruntime's errors into `OutOfMemory`, `DeviceLost` or `EngineFailed`."""
    try:
        yield
    except (DataPlaneError, DeviceLost, LoadFailed):
        raise
    except Exception as error:  # see above: no common base but `Exception`
        raise _translated(error) from error


def run_with_bit_patterns(
    session: Any, names: Sequence[str], tensors: Mapping[str, Tensor]
) -> list[np.ndarray]:
    """Run a model that takes or gives bfloat16, whose values are 16-bit patterns on our side."""
    runtime = _library()
    values = {name: _ort_value(runtime, tensor) for name, tensor in tensors.items()}
    return [_array(value) for value in session.run_with_ort_values(list(names), values)]


def _ort_value(runtime: Any, tensor: Tensor) -> Any:
    array = np.ascontiguousarray(tensor.array)
    if tensor.datatype == "BF16":
        return runtime.OrtValue.ortvalue_from_numpy_with_onnx_type(array, _BFLOAT16)
    return runtime.OrtValue.ortvalue_from_numpy(array)


def _array(value: Any) -> np.ndarray:
    if value.element_type() != _BFLOAT16:
        array: np.ndarray = value.numpy()
        return array
    shape = tuple(value.shape())
    raw = (ctypes.c_uint16 * math.prod(shape)).from_address(value.data_ptr()) if math.prod(shape) else ()
    return np.array(raw, np.uint16).reshape(shape)  # copied: the memory is the value's


def _library() -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise LoadFailed(f"onnxruntime is not installed on this host ({INSTALL})") from error
    return onnxruntime


def _providers(runtime: Any, device: str) -> list[Any]:
    kind, _, index = device.partition(":")
    if kind == "cpu" and not index:
        return ["CPUExecutionProvider"]
    if kind != "cuda" or not (index or "0").isdigit():
        raise LoadFailed(f"device must be cpu or cuda:N, not {device!r}")
    if "CUDAExecutionProvider" not in runtime.get_available_providers():
        raise LoadFailed(f"this onnxruntime has no CUDA: install onnxruntime-gpu to run on {device}")
    runtime.preload_dlls()  # torch brings CUDA's libraries; they are found only when loaded before
    return [("CUDAExecutionProvider", {"device_id": int(index or 0)}), "CPUExecutionProvider"]


def _name(provider: Any) -> str:
    return provider[0] if isinstance(provider, tuple) else str(provider)


def _options(runtime: Any, threads: int) -> Any:
    options = runtime.SessionOptions()
    options.intra_op_num_threads = max(1, threads)
    options.inter_op_num_threads = 1
    # Its threads would spin between batches, on cores that belong to other replicas.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    return options


def _translated(error: Exception) -> Exception:
    text = str(error).lower()
    if isinstance(error, MemoryError) or any(mark in text for mark in _OUT_OF_MEMORY):
        return OutOfMemory("the device has not enough memory", retry_after_s=1.0)
    if any(mark in text for mark in _FATAL):
        return DeviceLost(f"the device failed: {_first_line(error)}")
    return EngineFailed(f"the model failed on this input ({type(error).__name__})")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0][:300]
