"""Open Inference Protocol tensors: JSON data or raw bytes in, little-endian row-major bytes out, and back."""

from __future__ import annotations

import asyncio
import math
import struct
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import orjson

from serving.errors import InvalidTensor

MAX_RANK = 8
SLICE_ELEMENTS = 32_768
COUNTED_BYTES = 64 << 10
"""Longer JSON is counted before objects are made of it."""
FEW_BYTES = 256
_BRACKET, _DIGITS = ord("["), frozenset(b"0123456789-")
_LENGTH = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Datatype:
    """How one datatype looks in memory and in JSON."""

    name: str
    dtype: np.dtype[Any]
    size_bytes: int
    element: type
    code: str
    """Type code of `array`, empty where it has none."""
    limit: float
    """Largest finite value, 0 where JSON cannot exceed it."""

    @property
    def is_float(self) -> bool:
        return self.element is float


_ARRAY_CODES = {
    code: kind
    for code, kind in {
        "u1": "B", "<u2": "H", "<u4": "I", "<u8": "Q",
        "i1": "b", "<i2": "h", "<i4": "i", "<i8": "q",
        "<f4": "f", "<f8": "d",
    }.items()
    if sys.byteorder == "little" and array(kind).itemsize == np.dtype(code).itemsize
}  # fmt: skip


def _datatype(name: str, code: str, element: type) -> tuple[str, Datatype]:
    dtype = np.dtype(code)
    limit = float(np.finfo(dtype).max) if element is float and dtype.itemsize < 8 else 0.0
    return name, Datatype(name, dtype, dtype.itemsize, element, _ARRAY_CODES.get(code, ""), limit)


DATATYPES: dict[str, Datatype] = dict(
    (
        _datatype("BOOL", "?", bool),
        _datatype("UINT8", "u1", int),
        _datatype("UINT16", "<u2", int),
        _datatype("UINT32", "<u4", int),
        _datatype("UINT64", "<u8", int),
        _datatype("INT8", "i1", int),
        _datatype("INT16", "<i2", int),
        _datatype("INT32", "<i4", int),
        _datatype("INT64", "<i8", int),
        _datatype("FP16", "<f2", float),
        _datatype("FP32", "<f4", float),
        _datatype("FP64", "<f8", float),
    )
)
BF16_BYTES = 2
BYTES = "BYTES"


def _nested(element: type, depth: int) -> Any:
    kind: Any = element
    for _ in range(depth):
        kind = list[kind]
    return kind


_decoders: dict[tuple[type, int], Any] = {
    (element, depth): msgspec.json.Decoder(_nested(element, depth)).decode
    for element in (bool, int, float, str)
    for depth in range(1, MAX_RANK + 1)
}


def item_bytes(datatype: str) -> int | None:
    """Size of one element, None for BYTES. Raises `InvalidTensor` for an unknown datatype."""
    if datatype == BYTES:
        return None
    if datatype == "BF16":
        return BF16_BYTES
    known = DATATYPES.get(datatype)
    if known is None:
        raise InvalidTensor(f"unknown datatype {datatype!r}", param="datatype")
    return known.size_bytes


def elements(shape: Sequence[int]) -> int:
    return math.prod(shape)


def decode_json(name: str, datatype: str, shape: Sequence[int], raw: bytes | memoryview) -> bytes:
    """JSON `data`, flat or nested as `shape` says, as raw bytes. Raises `InvalidTensor`."""
    known = DATATYPES.get(datatype)
    if known is None:
        raise InvalidTensor(f"input {name!r}: datatype {datatype} cannot be sent as JSON", param=name)
    values = _values(name, known.element, shape, raw)
    if values and known.code and type(values[0]) is known.element:
        return _pack_flat(name, known, shape, values)
    try:
        with np.errstate(over="ignore"):  # found and refused below
            values_array = np.array(values, dtype=known.dtype)
    except (ValueError, OverflowError) as error:
        raise InvalidTensor(f"input {name!r}: {error}", param=name) from None
    _check_array(name, known, shape, values_array)
    return values_array.tobytes()


def decode_plain(datatype: str, count: int, raw: bytes | memoryview) -> bytes | None:
    """`decode_json` of a flat list of `count` numbers; None where it is anything else or anything is wrong."""
    known = DATATYPES.get(datatype)
    if known is None or not known.code or len(raw) < 3:
        return None
    view = memoryview(raw)
    if view[0] != _BRACKET or view[1] not in _DIGITS:
        return None
    try:
        values = _decoders[known.element, 1](view)
        if len(values) != count or (
            known.limit and not -known.limit <= min(values) <= max(values) <= known.limit
        ):
            return None
        return array(known.code, values).tobytes()
    except (msgspec.DecodeError, OverflowError):
        return None


def _pack_flat(name: str, known: Datatype, shape: Sequence[int], values: list[Any]) -> bytes:
    """A flat list by way of `array`: a fifth of what numpy takes for the few numbers of a typical request."""
    if len(values) != math.prod(shape):
        raise _wrong_count(name, shape, len(values))
    if known.limit and (max(values) > known.limit or min(values) < -known.limit):
        raise _out_of_range(name, known)
    try:
        return array(known.code, values).tobytes()
    except OverflowError as error:
        raise InvalidTensor(f"input {name!r}: {error}", param=name) from None


def decode_json_bytes(name: str, shape: Sequence[int], raw: bytes | memoryview) -> list[str]:
    """JSON `data` of a BYTES tensor: its strings, flattened. Raises `InvalidTensor`."""
    if len(raw) > COUNTED_BYTES and (least := least_strings(raw)) > elements(shape):
        raise _wrong_count(name, shape, least)
    values = _values(name, str, shape, raw)
    while values and isinstance(values[0], list):
        values = [item for part in values for item in part]
    if len(values) != elements(shape):
        raise _wrong_count(name, shape, len(values))
    return values


def least_strings(raw: bytes | memoryview) -> int:
    """At least so many strings are in this JSON, at most twice as many: counting costs a tenth of decoding.

    A quote behind a backslash may be part of a text or, behind an escaped backslash, end one.
    """
    text = bytes(raw)
    return (text.count(b'"') - text.count(b'\\"')) // 2


def _values(name: str, element: type, shape: Sequence[int], raw: bytes | memoryview) -> list[Any]:
    depth = _depth(raw)
    if depth not in (1, len(shape)):
        message = f"input {name!r}: data must be flat or nested {len(shape)} deep, not {depth}"
        raise InvalidTensor(message, param=name)
    try:
        return _decoders[element, depth](raw)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise InvalidTensor(f"input {name!r}: {error}", param=name) from None


def _depth(raw: bytes | memoryview) -> int:
    """Number of brackets that open the JSON text."""
    if len(raw) > 1 and raw[0] == _BRACKET and raw[1] in _DIGITS:
        return 1
    head = bytes(raw[:64]).translate(None, b" \t\r\n")
    return len(head) - len(head.lstrip(b"["))


def _check_array(name: str, known: Datatype, shape: Sequence[int], values: np.ndarray[Any, Any]) -> None:
    if values.size != elements(shape):
        raise _wrong_count(name, shape, values.size)
    if values.ndim > 1 and values.shape != tuple(shape):
        raise InvalidTensor(
            f"input {name!r}: data is nested as {values.shape}, not {tuple(shape)}", param=name
        )
    # JSON has no infinity: one can only come from a number too large for the datatype.
    if known.is_float and known.size_bytes < 8 and not np.isfinite(values).all():
        raise _out_of_range(name, known)


def _out_of_range(name: str, known: Datatype) -> InvalidTensor:
    return InvalidTensor(f"input {name!r}: a value is out of range for {known.name}", param=name)


def _wrong_count(name: str, shape: Sequence[int], count: int) -> InvalidTensor:
    wanted = elements(shape)
    message = f"input {name!r}: shape {list(shape)} holds {wanted} elements, data has {count}"
    return InvalidTensor(message, param=name, numbers={"expected": wanted, "got": count})


def check_raw(name: str, datatype: str, shape: Sequence[int], raw: memoryview) -> None:
    """Raises `InvalidTensor` when raw bytes are not as many as the shape needs."""
    size = item_bytes(datatype)
    if size is None:
        return
    wanted = size * elements(shape)
    if raw.nbytes != wanted:
        message = f"input {name!r}: {datatype} {list(shape)} needs {wanted} bytes, got {raw.nbytes}"
        raise InvalidTensor(message, param=name, numbers={"expected_bytes": wanted, "got_bytes": raw.nbytes})


def split_bytes(name: str, raw: memoryview, count: int) -> list[bytes]:
    """Elements of a raw BYTES tensor (u32 length, then that many bytes each). Raises `InvalidTensor`."""
    out: list[bytes] = []
    at, end = 0, raw.nbytes
    while at < end:
        stop = at + 4
        if stop > end or (stop := stop + _LENGTH.unpack_from(raw, at)[0]) > end or len(out) == count:
            raise InvalidTensor(f"input {name!r}: malformed BYTES data at byte {at}", param=name)
        out.append(bytes(raw[at + 4 : stop]))
        at = stop
    if len(out) != count:
        raise _wrong_count(name, (count,), len(out))
    return out


def join_bytes(items: Sequence[bytes]) -> bytes:
    """The raw form of a BYTES tensor."""
    return b"".join(part for item in items for part in (_LENGTH.pack(len(item)), item))


def encode_json(datatype: str, raw: memoryview) -> bytes:
    """A flat JSON array of raw tensor bytes. NaN and infinity become null, as JSON has neither."""
    if datatype == BYTES:
        return orjson.dumps(_texts(raw))
    if datatype == "BF16":
        wide = np.frombuffer(raw, "<u2").astype(np.uint32) << 16
        return orjson.dumps(wide.view(np.float32), option=orjson.OPT_SERIALIZE_NUMPY)
    known = DATATYPES[datatype]
    if known.element is int and raw.nbytes <= FEW_BYTES and known.code:
        return orjson.dumps(array(known.code, raw.tobytes()).tolist())  # numpy takes twice as long to begin
    values = np.frombuffer(raw, known.dtype)
    if datatype == "FP16":
        values = values.astype(np.float32)
    return orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY)


async def encode_json_politely(datatype: str, raw: memoryview) -> bytes:
    """`encode_json` in slices of about a millisecond, so that others' answers leave in between."""
    step = SLICE_ELEMENTS * (item_bytes(datatype) or 0)
    if not step or raw.nbytes <= step:
        return encode_json(datatype, raw)
    parts = []
    for start in range(0, raw.nbytes, step):
        parts.append(encode_json(datatype, raw[start : start + step])[1:-1])
        await asyncio.sleep(0)
    return b"[%b]" % b",".join(parts)


def _texts(raw: memoryview) -> list[str]:
    out: list[str] = []
    at = 0
    while at < raw.nbytes:
        (length,) = _LENGTH.unpack_from(raw, at)
        out.append(bytes(raw[at + 4 : at + 4 + length]).decode(errors="replace"))
        at += 4 + length
    return out
