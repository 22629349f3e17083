"""An ONNX file walked as protobuf, field by field: one file, standard operators, no outside data.

ONNX holds no code, but a model may name files to read (`external_data`, with any path) and operators of
custom domains, which a runtime resolves to loaded libraries. Field numbers: onnx/onnx.proto (IR version 10).
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

from serving.control.catalog.refusal import Refused

STANDARD_DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml"})
MAX_DEPTH = 64
MAX_NODES = 2_000_000

_MESSAGES: dict[str, dict[int, str]] = {
    "model": {7: "graph", 8: "opset", 20: "training", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {},
    "opset": {},
}
"""Which fields of which message are walked into."""
_DOMAIN_FIELD = {"node": 7, "opset": 1}
_EXTERNAL_DATA, _DATA_LOCATION = 13, 14
Span = tuple[int, int]
"""Start and end of a length-delimited field. Offsets, not slices: the mapping must close even on refusal."""


def scan(file: Path) -> None:
    """Raises `Refused` when the file is not a self-contained model of standard operators."""
    if file.stat().st_size == 0:
        raise Refused("an empty file", file.name)
    with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        _Walk(mapped, file.name).model()


class _Walk:
    def __init__(self, data: mmap.mmap, label: str) -> None:
        self._data = data
        self._label = label
        self._nodes = 0

    def model(self) -> None:
        whole = (0, len(self._data))
        if not {1, 7, 8} <= {number for number, _ in self._fields(whole)}:
            raise self._refused("not an ONNX model: it lacks an IR version, an operator set or a graph")
        self._message("model", whole, 0)

    def _message(self, kind: str, span: Span, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise self._refused("graphs nested too deeply")
        self._nodes += kind == "node"
        if self._nodes > MAX_NODES:
            raise self._refused(f"more than {MAX_NODES} operators")
        for number, value in self._fields(span):
            self._check(kind, number, value)
            inner = _MESSAGES[kind].get(number)
            if inner is not None:
                self._message(inner, self._span(value), depth + 1)

    def _check(self, kind: str, number: int, value: Span | int) -> None:
        if kind == "model" and number in (20, 25):
            raise self._refused("training or function sections; export a plain inference graph")
        if kind == "tensor" and (number == _EXTERNAL_DATA or (number == _DATA_LOCATION and value != 0)):
            raise self._refused("weights in another file; save the model with its weights inside")
        if number == _DOMAIN_FIELD.get(kind):
            start, end = self._span(value)
            domain = self._data[start : min(end, start + 128)].decode("utf-8", "replace")
            if domain not in STANDARD_DOMAINS:
                raise self._refused(f"operators of the custom domain {domain!r}")

    def _span(self, value: Span | int) -> Span:
        if isinstance(value, int):
            raise self._refused("a field of the wrong kind")
        return value

    def _fields(self, span: Span) -> Iterator[tuple[int, Span | int]]:
        """Field numbers with their values: integers as such, everything of a length as its span."""
        position, end = span
        while position < end:
            tag, position = self._varint(position, end)
            value: Span | int
            match tag & 7:
                case 0:
                    value, position = self._varint(position, end)
                case 1 | 5 as wire:
                    value, position = 0, position + (8 if wire == 1 else 4)
                case 2:
                    length, position = self._varint(position, end)
                    value, position = (position, position + length), position + length
                case _:
                    raise self._refused("not protobuf")
            if tag >> 3 == 0 or position > end:
                raise self._refused("not protobuf")
            yield tag >> 3, value

    def _varint(self, position: int, end: int) -> tuple[int, int]:
        value = 0
        for shift in range(0, 70, 7):
            if position >= end:
                break
            byte = self._data[position]
            position += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value, position
        raise self._refused("not protobuf")

    def _refused(self, reason: str) -> Refused:
        return Refused(reason, self._label)
