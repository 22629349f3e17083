"""What an Open Inference Protocol request says before any model is asked: its JSON, its limits, its parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from serving.errors import InvalidJson, InvalidRequest, InvalidTensor
from serving.gateway import tensors
from serving.gateway.json_limits import check_depth

HEADER_LENGTH = b"inference-header-content-length"
MAX_TENSORS = 256
MAX_TIMEOUT_US = 10**12
"""Longer ones are taken for this: no deadline is longer."""

Body = TypeVar("Body")
Scalar = int | float | str | bool | None


# Only what is known is read: of megabytes in some other parameter no object is made.
class InputParameters(msgspec.Struct):
    binary_data_size: Scalar = None


class OutputParameters(msgspec.Struct):
    binary_data: Scalar = None
    classification: Scalar = None


class RequestParameters(msgspec.Struct):
    binary_data_output: Scalar = None
    timeout: Scalar = None
    priority: Scalar = None
    sequence_id: Scalar = None
    sequence_start: Scalar = None
    sequence_end: Scalar = None


class InputTensor(msgspec.Struct):
    name: str
    shape: list[int]
    datatype: str
    parameters: InputParameters | None = None
    data: msgspec.Raw = msgspec.Raw()


class OutputWish(msgspec.Struct):
    name: str
    parameters: OutputParameters | None = None


class InferBody(msgspec.Struct):
    inputs: list[InputTensor]
    id: str = ""
    parameters: RequestParameters | None = None
    outputs: list[OutputWish] | None = None


_decode = msgspec.json.Decoder(InferBody).decode


def header_length(length: bytes, size: int) -> int:
    """Bytes of JSON in a body of `size`, as the header says. Raises `InvalidRequest`."""
    if not length.isdigit() or len(length) > 12 or int(length) > size:
        raise InvalidRequest("Inference-Header-Content-Length does not fit the body")
    return int(length)


def parse(content: bytes, json_bytes: int) -> InferBody:
    """Raises `InvalidJson`, `InvalidRequest` or `InvalidTensor`."""
    body = decoded(_decode, content if json_bytes == len(content) else memoryview(content)[:json_bytes])
    _check_counts(body)
    return body


def decoded(decode: Callable[[bytes | memoryview], Body], text: bytes | memoryview) -> Body:
    """Raises `InvalidJson` or `InvalidRequest`."""
    check_depth(text)
    try:
        return decode(text)
    except msgspec.ValidationError as error:
        raise InvalidRequest(str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidJson(f"the body is not valid JSON: {error}") from None


def _check_counts(body: InferBody) -> None:
    """What no version can take is let go of at once, not when the request's turn comes."""
    if len(body.inputs) == 1 and not body.outputs and len(body.inputs[0].shape) <= tensors.MAX_RANK:
        return  # as most are
    for name, listed in (("inputs", body.inputs), ("outputs", body.outputs or ())):
        if len(listed) > MAX_TENSORS:
            message = f"{name} holds {len(listed)} tensors, more than {MAX_TENSORS}"
            raise InvalidRequest(message, param=name, numbers={"max_tensors": MAX_TENSORS})
    for tensor in body.inputs:
        if len(tensor.shape) > tensors.MAX_RANK:
            message = (
                f"input {tensor.name!r} has {len(tensor.shape)} dimensions, more than {tensors.MAX_RANK}"
            )
            raise InvalidTensor(message, param=tensor.name)


def timeout_us(parameters: RequestParameters) -> int | None:
    """`parameters.timeout`, None without one. Raises `InvalidRequest`."""
    for name in ("sequence_id", "sequence_start", "sequence_end"):
        if getattr(parameters, name):
            raise InvalidRequest("the sequence extension is not supported", param=name)
    timeout = parameters.timeout
    if timeout is None or timeout == 0:
        return None
    if not isinstance(timeout, int) or isinstance(timeout, bool) or timeout < 0:
        raise InvalidRequest("parameters.timeout is a whole number of microseconds", param="timeout")
    return min(timeout, MAX_TIMEOUT_US)
