"""What a person gives to measure on: texts, or tensors as in the Open Inference Protocol. Bounded, checked."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import msgspec

from serving.contract import OptionValue, SampleTensor, TensorSpec
from tenants.errors import Invalid

MAX_TEXTS = 256
MAX_TEXT_CHARS = 8_000
MAX_CHARS = 64_000
"""Of all texts, or of the tensors' JSON: a run is a configuration entry, which every agent reads."""


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    inputs: list[_Input]


class _Input(msgspec.Struct):
    name: str
    datatype: str
    shape: list[int]
    data: list[Any]


_decode = msgspec.json.Decoder(_Document).decode


def texts_of(lines: str) -> tuple[str, ...]:
    """One text per line, empty lines aside."""
    return tuple(line.strip() for line in lines.splitlines() if line.strip())


def checked_texts(texts: Sequence[str]) -> tuple[str, ...]:
    """Raises `Invalid` for the field `samples`."""
    if len(texts) > MAX_TEXTS:
        raise _invalid(f"{len(texts)} texts; at most {MAX_TEXTS}.")
    if any(not text.strip() or len(text) > MAX_TEXT_CHARS for text in texts):
        raise _invalid(f"A text is empty, or longer than {MAX_TEXT_CHARS} characters.")
    if not all(map(_is_storable, texts)):
        raise _invalid("A text holds characters that are no text.")
    if sum(map(len, texts)) > MAX_CHARS:
        raise _invalid(f"More than {MAX_CHARS} characters together.")
    return tuple(texts)


def tensors_of(raw: str, specs: Sequence[TensorSpec]) -> tuple[SampleTensor, ...]:
    """`{"inputs": [{"name", "shape", "datatype", "data"}]}`, as a client would send it to the model.

    Raises `Invalid` for the field `samples` when it is not that, or not what the model takes.
    """
    if len(raw) > MAX_CHARS:
        raise _invalid(f"More than {MAX_CHARS} characters.")
    try:
        document = _decode(raw)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError) as error:
        raise _invalid(f"Not a request body with inputs: {error}.") from None
    tensors = tuple(_tensor(each) for each in document.inputs)
    _check_against(tensors, specs)
    return tensors


def is_json(samples: str) -> bool:
    """Whether a person meant tensors: texts rarely are whole JSON objects."""
    try:
        return isinstance(json.loads(samples), dict)
    except (ValueError, RecursionError):
        return False


def _tensor(given: _Input) -> SampleTensor:
    flat = tuple(_flat(given.data))
    if not given.shape or min(given.shape) < 0 or math.prod(given.shape) != len(flat):
        raise _invalid(f"{given.name}: {len(flat)} values do not make the shape {given.shape}.")
    return SampleTensor(name=given.name, datatype=given.datatype, shape=tuple(given.shape), data=flat)


def _flat(data: list[Any]) -> list[OptionValue]:
    """Flat or nested, row-major."""
    out: list[OptionValue] = []
    pending: list[Any] = list(reversed(data))
    while pending:
        item = pending.pop()
        if isinstance(item, list):
            pending.extend(reversed(item))
        elif isinstance(item, bool | int | float) or (isinstance(item, str) and _is_storable(item)):
            out.append(item)
        else:
            raise _invalid("Tensors hold numbers, texts, true and false.")
    return out


def _is_storable(text: str) -> bool:
    """PostgreSQL keeps neither NUL nor half a surrogate pair."""
    return "\0" not in text and not any("\ud800" <= char <= "\udfff" for char in text)


def _check_against(tensors: Sequence[SampleTensor], specs: Sequence[TensorSpec]) -> None:
    wanted = {spec.name: spec for spec in specs}
    if {tensor.name for tensor in tensors} != wanted.keys() or len(tensors) != len(wanted):
        raise _invalid(f"The model takes the inputs {', '.join(wanted)}, each once.")
    for tensor in tensors:
        spec = wanted[tensor.name]
        if tensor.datatype != spec.datatype:
            raise _invalid(f"{tensor.name} must be {spec.datatype}, not {tensor.datatype}.")
        fits = len(tensor.shape) == len(spec.shape) and all(
            want in (-1, got) for want, got in zip(spec.shape, tensor.shape, strict=True)
        )
        if not fits:
            raise _invalid(f"{tensor.name} must have the shape {list(spec.shape)}, not {list(tensor.shape)}.")
    rows = {tensor.shape[0] for tensor in tensors}
    if len(rows) != 1 or not 1 <= rows.pop() <= MAX_TEXTS:
        raise _invalid(f"1 to {MAX_TEXTS} rows, as many in every input.")


def _invalid(said: str) -> Invalid:
    return Invalid({"samples": said})
