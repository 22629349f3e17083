"""Open Inference Protocol datatypes ↔ numpy arrays ↔ raw little-endian bytes."""

from __future__ import annotations

import math
import struct

import numpy as np

from serving.errors import InvalidTensor
from serving.wire import TensorHead
from serving.worker.engines.contract import Tensor

NUMPY: dict[str, np.dtype] = {
    "BOOL": np.dtype("?"),
    "UINT8": np.dtype("u1"),
    "UINT16": np.dtype("<u2"),
    "UINT32": np.dtype("<u4"),
    "UINT64": np.dtype("<u8"),
    "INT8": np.dtype("i1"),
    "INT16": np.dtype("<i2"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "FP16": np.dtype("<f2"),
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
    "BF16": np.dtype("<u2"),  # numpy has no such type: bit patterns
}
_BY_NUMPY = {dtype: name for name, dtype in NUMPY.items() if name != "BF16"}
_COUNT = struct.Struct("<I")
_COPIED_BYTES = 4096
"""Below this a copy costs less than a view."""


def decode(head: TensorHead, raw: bytes | memoryview) -> Tensor:
    """A view of `raw` as the tensor that `head` describes.

    Raises `InvalidTensor` when the datatype is unknown or the size does not follow from the shape.
    """
    shape = head.shape
    if shape and min(shape) < 0:
        raise InvalidTensor(f"{head.name}: negative size in shape {list(shape)}", param=head.name)
    count = math.prod(shape)
    if head.datatype == "BYTES":
        return Tensor("BYTES", _decode_bytes(head, raw, count))
    dtype = NUMPY.get(head.datatype)
    if dtype is None:
        raise InvalidTensor(f"{head.name}: unknown datatype {head.datatype!r}", param=head.name)
    if count * dtype.itemsize != len(raw):
        raise InvalidTensor(
            f"{head.name}: shape {list(shape)} of {head.datatype} needs {count * dtype.itemsize} bytes, "
            f"got {len(raw)}",
            param=head.name,
        )
    return Tensor(head.datatype, np.ndarray(shape, dtype, raw))


def encode(name: str, tensor: Tensor) -> tuple[TensorHead, bytes | memoryview]:
    """Header and raw bytes of one tensor; large contiguous arrays are not copied."""
    array = tensor.array
    nbytes = array.nbytes
    raw: bytes | memoryview
    if tensor.datatype == "BYTES":
        raw = b"".join(_COUNT.pack(len(item)) + item for item in array.ravel().tolist())
        return TensorHead(name, "BYTES", array.shape, len(raw)), raw
    if nbytes <= _COPIED_BYTES:
        return TensorHead(name, tensor.datatype, array.shape, nbytes), array.tobytes()
    array = np.ascontiguousarray(array)
    raw = array.data.cast("B")
    return TensorHead(name, tensor.datatype, array.shape, nbytes), raw


def of_numpy(array: np.ndarray) -> Tensor:
    """Name an array's datatype; text and objects become BYTES.

    Raises `InvalidTensor` for a dtype the protocol does not know, such as complex numbers.
    """
    if array.dtype.kind in "OSU":
        items = [item.encode() if isinstance(item, str) else bytes(item) for item in array.ravel().tolist()]
        flat = np.empty(len(items), object)
        flat[:] = items
        return Tensor("BYTES", flat.reshape(array.shape))
    name = _BY_NUMPY.get(array.dtype.newbyteorder("<"))
    if name is None:
        raise InvalidTensor(f"no datatype of the protocol holds {array.dtype}")
    return Tensor(name, array.astype(NUMPY[name], copy=False))


def _decode_bytes(head: TensorHead, raw: bytes | memoryview, count: int) -> np.ndarray:
    view, offset = memoryview(raw), 0
    items: list[bytes] = []
    while offset + 4 <= len(view) and len(items) < count:
        (size,) = _COUNT.unpack_from(view, offset)
        offset += 4 + size
        items.append(bytes(view[offset - size : offset]))
    if offset != len(view) or len(items) != count:
        raise InvalidTensor(
            f"{head.name}: BYTES data does not hold {count} length-prefixed items", param=head.name
        )
    out = np.empty(count, object)
    out[:] = items
    return out.reshape(head.shape)
