"""The safetensors header: 8 bytes of length, JSON, then raw tensors that exactly fill the file.

Source of the rules: https://github.com/huggingface/safetensors (README, "Format"). The format holds no
code; the check is that the file really is in it, since a name proves nothing.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from serving.control.catalog.refusal import Refused
from serving.control.catalog.scanning import plain_json

MAX_HEADER_BYTES = 100_000_000
"""The limit of the reference implementation."""
BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "I16": 16, "U16": 16, "F16": 16,
    "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "F64": 64, "I64": 64, "U64": 64, "C64": 64,
}  # fmt: skip


def scan(file: Path, member: str) -> int:
    """The number of tensors. Raises `Refused` when the file is anything but plain safetensors."""
    size_bytes = file.stat().st_size
    with file.open("rb") as stream:
        prefix = stream.read(8)
        header_bytes = int.from_bytes(prefix, "little")
        if len(prefix) < 8 or not 2 <= header_bytes <= min(size_bytes - 8, MAX_HEADER_BYTES):
            raise Refused("not a safetensors file: its header length does not fit the file", member)
        raw = stream.read(header_bytes)
    if not raw.startswith(b"{"):
        raise Refused("not a safetensors file: its header is not JSON", member)
    header = plain_json.parse_object(raw, member)
    _check_metadata(header.pop("__metadata__", {}), member)
    _check_layout(header, size_bytes - 8 - header_bytes, member)
    return len(header)


def _check_metadata(metadata: Any, member: str) -> None:
    is_flat = isinstance(metadata, dict) and all(isinstance(value, str) for value in metadata.values())
    if not is_flat:
        raise Refused("safetensors metadata must map text to text", member)


def _check_layout(header: dict[str, Any], data_bytes: int, member: str) -> None:
    """Tensors in order of offset, without gap or overlap, up to the last byte."""
    position = 0
    for start, end, name in sorted(_span(name, entry, member) for name, entry in header.items()):
        if start != position:
            raise Refused(f"tensor {name!r} leaves a gap or overlaps another", member)
        position = end
    if position != data_bytes:
        raise Refused(f"{data_bytes - position} bytes beyond the last tensor", member)


def _span(name: str, entry: Any, member: str) -> tuple[int, int, str]:
    match entry:
        case {"dtype": str(dtype), "shape": [*shape], "data_offsets": [int(start), int(end)]}:
            pass
        case _:
            raise Refused(f"tensor {name!r} lacks dtype, shape or offsets", member)
    if dtype not in BITS:
        raise Refused(f"tensor {name!r} has unknown dtype {dtype!r}", member)
    if not all(type(size) is int and 0 <= size < 1 << 48 for size in shape):
        raise Refused(f"tensor {name!r} has an impossible shape", member)
    if not 0 <= start <= end or (end - start) * 8 != math.prod(shape) * BITS[dtype]:
        raise Refused(f"tensor {name!r} has offsets that do not fit its shape", member)
    return start, end, name
